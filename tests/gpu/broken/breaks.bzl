"""Builds of backends/device with one mistake each, and tests that the mistake is found."""

def device_break(name, source, cases, case, reason):
    """A test that passes if the device tests fail on a build with the mistake.

    Args:
        name: the mistake is NAME.patch. A patch that does not fit the source as it is ends the
            build.
        source: a file of backends/device, which the patch changes.
        cases: the library with the tests.
        case: the beginning of the name of the test that has to fail.
        reason: a part of what it says then.
    """
    file = "//backends/device:" + source
    native.genrule(
        name = name + "_source",
        testonly = True,
        srcs = [
            name + ".patch",
            file,
        ],
        outs = [name + "/" + source],
        cmd = "cat $(execpath %s) > $@ && " % file +
              "patch --quiet --fuzz=0 --reject-file=- $@ $(execpath %s.patch)" % name,
    )

    # The program's own definitions come before those of the library.
    native.cc_binary(
        name = name + "_program",
        testonly = True,
        srcs = [
            name + "/" + source,
            "//backends/device:parts",
        ],
        tags = ["notsan"],
        deps = [
            cases,
            "//backends/device:device_thread",
        ],
    )
    native.sh_test(
        name = name + "_test",
        size = "small",
        srcs = ["expect_failure.sh"],
        args = [
            "$(rootpath :%s_program)" % name,
            "'%s'" % case,
            "'%s'" % reason,
        ],
        data = [":%s_program" % name],
        tags = ["notsan"],
    )
