"""The static libraries inside libringd, as linker options; README.md says why and how."""

_ABSEIL = [
    "bad_optional_access",
    "bad_variant_access",
    "base",
    "city",
    "civil_time",
    "cord",
    "cord_internal",
    "cordz_functions",
    "cordz_handle",
    "cordz_info",
    "debugging_internal",
    "demangle_internal",
    "exponential_biased",
    "graphcycles_internal",
    "hash",
    "hashtablez_sampler",
    "int128",
    "log_severity",
    "low_level_hash",
    "malloc_internal",
    "random_distributions",
    "random_internal_platform",
    "random_internal_pool_urbg",
    "random_internal_randen",
    "random_internal_randen_hwaes",
    "random_internal_randen_hwaes_impl",
    "random_internal_randen_slow",
    "random_internal_seed_material",
    "random_seed_gen_exception",
    "random_seed_sequences",
    "raw_hash_set",
    "raw_logging_internal",
    "spinlock_wait",
    "stacktrace",
    "status",
    "statusor",
    "str_format_internal",
    "strerror",
    "strings",
    "strings_internal",
    "symbolize",
    "synchronization",
    "throw_delegate",
    "time",
    "time_zone",
]

_OTHERS = [
    "grpc++_unsecure",
    "grpc_unsecure",
    "gpr",
    "address_sorting",
    "upb",
    "cares",
    "re2",
    "protobuf",
    "z",
    # GCC's: Debian's objects refer to its variables directly.
    "stdc++",
]

# For the linkopts of a shared library that depends on //third_party/static:position_independent.
# They come before those of its dependencies, which name the shared libraries: nothing is left to
# take from them.
STATIC_LIBRARIES = [
    "-Wl,--wrap=stderr",
    "-Wl,--wrap=arc4random",
    "-Wl,--start-group",
] + ["-l:lib%s.a" % name for name in _OTHERS] + ["-l:libabsl_%s.a" % name for name in _ABSEIL] + [
    "-Wl,--end-group",
    "-Wl,--as-needed",
]
