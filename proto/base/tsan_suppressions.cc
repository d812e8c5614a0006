// For programs that are built with ThreadSanitizer, which asks for it.
#ifdef RINGD_TSAN
// Debian's absl::Status counts its references in a library that is not instrumented: to it, who
// frees the text would race with whoever has let go of it before.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:absl::*Status::Unref\n"; }
#endif
