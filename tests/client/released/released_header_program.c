/* A C11 program built with the header of ringd 1.2 as it was released: it must go on to work with
 * today's library. It is one rank of a job of one, and passes every structure of the interface.
 * `ringctl run` starts it. */
#include <stdio.h>
#include <string.h>

#include "tests/client/released/ringd_1_2.h"

static int failures = 0;

static void Check(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "failed: %s (last error: %s)\n", what, ringd_last_error());
  ++failures;
}

static void OnWarning(void* user_data, const char* text) {
  (void)user_data;
  fprintf(stderr, "warning: %s\n", text);
}

static ringd_options Options(void) {
  ringd_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.rank = -1;
  options.on_warning = &OnWarning;
  options.weight = 3;
  return options;
}

static ringd_tensor Tensor(const char* name, const int64_t* shape) {
  ringd_tensor tensor;
  memset(&tensor, 0, sizeof(tensor));
  tensor.struct_size = sizeof(tensor);
  tensor.name = name;
  tensor.kind = RINGD_ALLREDUCE;
  tensor.data_type = RINGD_FLOAT32;
  tensor.op = RINGD_SUM;
  tensor.dimensions = 1;
  tensor.shape = shape;
  tensor.prescale = 3;
  tensor.postscale = 2;
  return tensor;
}

static void CheckVersion(void) {
  const uint32_t version = ringd_api_version();
  Check(version >> 16 == RINGD_API_VERSION_MAJOR, "the library has the header's major version");
  Check(version >= RINGD_API_VERSION, "the library is not older than the header");
}

/* Without any ringd: what the sizes alone decide. */
static void CheckSizes(void) {
  ringd_context* context = NULL;
  ringd_options options = Options();
  options.socket = "/tmp/ringd-nowhere.sock";
  Check(ringd_open(&options, &context) == RINGD_NOT_FOUND, "the options are understood");
  options.struct_size = 8;
  Check(ringd_open(&options, &context) == RINGD_INVALID_ARGUMENT, "short options are refused");
  Check(strstr(ringd_last_error(), "ringd_options.struct_size is 8") != NULL, "with the size");
}

static void CheckPlace(ringd_context* context) {
  struct {
    ringd_place place;
    char behind[64];
  } given;
  memset(&given, 0x5a, sizeof(given));
  given.place.struct_size = sizeof(given.place);
  Check(ringd_get_place(context, &given.place) == RINGD_OK, "there is a place");
  Check(given.place.struct_size == sizeof(given.place), "its size stays the caller's");
  Check(given.place.rank == 0 && given.place.size == 1, "it is the only rank");
  Check(given.place.local_rank == 0 && given.place.local_size == 1, "also on the node");
  Check(given.place.cross_rank == 0 && given.place.cross_size == 1, "and across nodes");
  Check(given.place.node_count == 1 && given.place.node_index == 0, "of one node");
  Check(given.place.homogeneous == 1, "which is like all others");
  Check(given.place.node_name[0] != '\0', "the node has a name");
  Check(strcmp(given.place.daemon_version, ringd_version()) == 0, "ringd is the library's");
  for (size_t i = 0; i < sizeof(given.behind); ++i) {
    Check(given.behind[i] == 0x5a, "nothing is written behind the structure");
  }
  given.place.struct_size = 8;
  Check(ringd_get_place(context, &given.place) == RINGD_INVALID_ARGUMENT, "a short one is refused");
}

static void CheckTensors(ringd_context* context) {
  const int64_t shape = 2;
  ringd_tensor tensors[2] = {Tensor("first", &shape), Tensor("second", &shape)};
  ringd_registration numbers[2] = {0, 0};
  float values[2][2] = {{1, 2}, {10, 20}};
  Check(ringd_register(context, tensors, 2, numbers) == RINGD_OK, "tensors are registered");
  for (int i = 0; i < 2; ++i) {
    ringd_operation operation = 0;
    Check(ringd_submit(context, numbers[i], values[i], values[i], &operation) == RINGD_OK,
          "a tensor is submitted");
    Check(ringd_wait(context, operation, 30000) == RINGD_OK, "and reduced");
  }
  Check(values[0][0] == 6 && values[0][1] == 12, "the first one is scaled as described");
  Check(values[1][0] == 60 && values[1][1] == 120, "and the second one");
  tensors[1].struct_size = 8;
  Check(ringd_register(context, &tensors[1], 1, numbers) == RINGD_INVALID_ARGUMENT,
        "a short one is refused");
}

int main(void) {
  const ringd_options options = Options();
  ringd_context* context = NULL;
  CheckVersion();
  CheckSizes();
  Check(ringd_open(&options, &context) == RINGD_OK, "the job starts");
  if (context != NULL) {
    CheckPlace(context);
    CheckTensors(context);
    ringd_close(context);
  }
  if (failures == 0) printf("all is well\n");
  return failures == 0 ? 0 : 1;
}
