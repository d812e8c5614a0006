"""C++ code from .proto files, by Debian's protoc and gRPC plugin."""

def ringd_proto_library(name, deps = [], visibility = ["//visibility:public"]):
    """Makes the libraries NAME_proto_cc and NAME_grpc_cc from NAME.proto in this package.

    Args:
      name: the file's stem.
      deps: stems of the files of this package that NAME.proto imports.
      visibility: who may use the two libraries.
    """
    package = native.package_name()
    source = name + ".proto"
    imported = [dep + ".proto" for dep in deps]
    protoc = "/usr/bin/protoc --proto_path=. --proto_path=/usr/include"

    native.genrule(
        name = name + "_proto_gen",
        srcs = [source] + imported,
        outs = [name + ".pb.h", name + ".pb.cc"],
        cmd = protoc + " --cpp_out=$(GENDIR) %s/%s" % (package, source),
    )
    native.genrule(
        name = name + "_grpc_gen",
        srcs = [source] + imported,
        outs = [name + ".grpc.pb.h", name + ".grpc.pb.cc"],
        cmd = protoc + " --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin" +
              " --grpc_out=$(GENDIR) %s/%s" % (package, source),
    )
    native.cc_library(
        name = name + "_proto_cc",
        srcs = [name + ".pb.cc"],
        hdrs = [name + ".pb.h"],
        # Generated code is not ours to keep free of warnings.
        copts = ["-w"],
        visibility = visibility,
        deps = [":" + dep + "_proto_cc" for dep in deps] + ["//third_party:protobuf"],
    )
    native.cc_library(
        name = name + "_grpc_cc",
        srcs = [name + ".grpc.pb.cc"],
        hdrs = [name + ".grpc.pb.h"],
        copts = ["-w"],
        visibility = visibility,
        deps = [":" + dep + "_grpc_cc" for dep in deps] + [
            ":" + name + "_proto_cc",
            "//third_party:grpc",
        ],
    )
