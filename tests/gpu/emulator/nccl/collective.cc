#include "tests/gpu/emulator/nccl/collective.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/emulator/nccl/arithmetic.h"
#include "tests/gpu/emulator/nccl/cuda_access.h"
#include "tests/gpu/emulator/nccl/last_error.h"
#include "tests/gpu/emulator/nccl/settings.h"

namespace ringd::emulator {
namespace {

using std::chrono::steady_clock;

// What a step returns to the stream: 0 when all is done, else when to ask again, in microseconds.
constexpr int kDone = 0;
constexpr int kSoon = 30;
constexpr int kLater = 1000;
constexpr int kIllegalAddress = -static_cast<int>(CUDA_ERROR_ILLEGAL_ADDRESS);

// How the buffers are registered when the call is made.
void AddRegistration(const Communicator& communicator, const CollectiveCall& call, CallKey* key) {
  const auto ranks = static_cast<std::size_t>(communicator.world().size());
  const std::size_t bytes = call.count * SizeOf(*DataTypeOf(call.type));
  const bool scatters = call.kind == CollectiveKind::kReduceScatter;
  const bool gathers = call.kind == CollectiveKind::kAllGather;
  const RegisteredMemory& registered = communicator.registered();
  const auto receive = registered.Find(call.receive, gathers ? bytes * ranks : bytes);
  auto send = registered.Find(call.send, scatters ? bytes * ranks : bytes);
  const void* from = call.send;
  // What others than the root name counts for nothing.
  if (call.kind == CollectiveKind::kBroadcast && communicator.world().rank() != call.root) {
    send = receive;
    from = call.receive;
  }
  if (!send || !receive) return;
  key->registration = 1;
  if (!send->is_symmetric || !receive->is_symmetric) return;
  key->registration = 2;
  key->send_offset = reinterpret_cast<std::uintptr_t>(from) - send->begin;
  key->receive_offset = reinterpret_cast<std::uintptr_t>(call.receive) - receive->begin;
}

CallKey KeyOf(const Communicator& communicator, const CollectiveCall& call) {
  CallKey key{};
  key.kind = static_cast<std::int32_t>(call.kind);
  key.type = call.type;
  // Which operator of its own a rank uses is its own matter, and so is a sum's factor.
  key.op = call.op < kNcclBuiltInOps ? call.op : kNcclBuiltInOps;
  key.root = call.root;
  key.count = call.count;
  AddRegistration(communicator, call, &key);
  return key;
}

// Thread safety: the stream's thread alone.
// Invariant: all ranks that come to kMove have made the same call, so they count the same chunks.
class Collective {
 public:
  Collective(std::shared_ptr<Communicator> communicator, const CollectiveCall& call)
      : communicator_(std::move(communicator)),
        world_(communicator_->world()),
        call_(call),
        type_(*DataTypeOf(call.type)),
        pre_mul_(communicator_->FindOperator(call.op)),
        key_(KeyOf(*communicator_, call)),
        number_(communicator_->BeginLaunch()),
        ticket_(DeviceOrder::Append(communicator_->device(), communicator_.get())),
        per_chunk_(kChunkBytes / SizeOf(type_)) {}
  ~Collective() {
    DeviceOrder::Remove(communicator_->device(), ticket_);
    communicator_->EndCollective();
  }
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  // ringd_emulator_enqueue's work: `self` goes with the last call.
  static int Run(void* self, int stopping) {
    std::unique_ptr<Collective> collective(static_cast<Collective*>(self));
    if (stopping != 0) {
      collective->communicator_->Fail(kNcclUnhandledCudaError, "CUDA has failed on the stream");
      return kDone;
    }
    const int result = collective->Step();
    if (result > 0) (void)collective.release();
    return result;
  }

 private:
  enum class Phase { kBegin, kMatch, kMove, kLeave, kHung };

  int Step();
  int Begin();
  int Match();
  int Move();
  int Leave();
  void LookForLost();

  std::size_t ChunksPerBlock() const { return (call_.count + per_chunk_ - 1) / per_chunk_; }
  std::size_t ChunkCount() const {
    const bool is_scatter = call_.kind == CollectiveKind::kReduceScatter;
    return ChunksPerBlock() * static_cast<std::size_t>(is_scatter ? world_.size() : 1);
  }
  // Where the current chunk lies in its block, in elements.
  std::size_t Offset() const { return chunk_ % ChunksPerBlock() * per_chunk_; }
  std::size_t Block() const { return chunk_ / ChunksPerBlock(); }
  std::size_t Length() const { return std::min(per_chunk_, call_.count - Offset()); }
  // The current chunk of the block that begins `block` blocks after `base`; null: not this
  // device's.
  void* At(const void* base, std::size_t block) const;
  bool Put();
  bool Take();
  bool TakeCombined();
  bool CopyTo(std::size_t block, int from);

  const std::shared_ptr<Communicator> communicator_;
  World& world_;
  const CollectiveCall call_;
  const DataType type_;
  const std::optional<PreMulSum> pre_mul_;
  const CallKey key_;
  const std::uint64_t number_;
  const std::uint64_t ticket_;
  const std::size_t per_chunk_;
  Phase phase_ = Phase::kBegin;
  std::optional<steady_clock::time_point> slow_until_;
  std::size_t chunk_ = 0;
};

int Collective::Step() {
  if (communicator_->aborted()) return kDone;
  if (!DeviceOrder::IsFirst(communicator_->device(), ticket_)) return kSoon;
  switch (phase_) {
    case Phase::kBegin:
      return Begin();
    case Phase::kMatch:
      return Match();
    case Phase::kMove:
      return Move();
    case Phase::kLeave:
      return Leave();
    case Phase::kHung:
      LookForLost();
      return kLater;
  }
  return kLater;
}

int Collective::Begin() {
  if (const Fault* const fault = FindFault(world_.rank(), number_)) {
    if (fault->kind != Fault::Kind::kSlow) {
      if (fault->kind == Fault::Kind::kError) {
        communicator_->Fail(static_cast<NcclResult>(fault->value), "an error that was asked for");
      }
      phase_ = Phase::kHung;
      return kLater;
    }
    if (!slow_until_) slow_until_ = steady_clock::now() + std::chrono::microseconds(fault->value);
    if (steady_clock::now() < *slow_until_) return kSoon;
  }
  world_.own().call = key_;
  world_.own().posted.store(number_, std::memory_order_release);
  phase_ = Phase::kMatch;
  return Match();
}

// NCCL compares nothing: ranks that disagree wait for bytes that never come.
int Collective::Match() {
  if (!world_.AllReached(&RankCell::posted, number_)) {
    LookForLost();
    return kSoon;
  }
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (world_.cell(rank).call != key_) {
      phase_ = Phase::kHung;
      return kLater;
    }
  }
  world_.own().matched.store(number_, std::memory_order_release);
  phase_ = Phase::kMove;
  return Move();
}

void Collective::LookForLost() {
  const int lost = world_.FindLost();
  if (lost < 0 || communicator_->state() == kNcclRemoteError) return;
  communicator_->Fail(kNcclRemoteError,
                      "the connection to rank " + std::to_string(lost) + " is lost");
}

int Collective::Move() {
  const std::size_t count = ChunkCount();
  RankCell& own = world_.own();
  while (chunk_ < count) {
    const std::uint64_t before = communicator_->chunks + chunk_;
    if (own.written.load(std::memory_order_relaxed) == before) {
      if (!world_.AllReached(&RankCell::consumed, before)) break;
      if (!Put()) return kIllegalAddress;
      own.written.store(before + 1, std::memory_order_release);
    }
    if (!world_.AllReached(&RankCell::written, before + 1)) break;
    if (!Take()) return kIllegalAddress;
    own.consumed.store(before + 1, std::memory_order_release);
    ++chunk_;
  }
  if (chunk_ < count) {
    LookForLost();
    return kSoon;
  }
  phase_ = Phase::kLeave;
  return Leave();
}

// Another rank may still want to read this one's call.
int Collective::Leave() {
  if (!world_.AllReached(&RankCell::matched, number_)) return kSoon;
  communicator_->chunks += ChunkCount();
  return kDone;
}

void* Collective::At(const void* base, std::size_t block) const {
  const std::size_t size = SizeOf(type_);
  const std::size_t at = (block * call_.count + Offset()) * size;
  const auto pointer = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(base));
  return CudaAccess::Find()->alias(communicator_->device(), pointer + at, Length() * size);
}

bool Collective::Put() {
  if (call_.kind == CollectiveKind::kBroadcast && world_.rank() != call_.root) return true;
  const void* const source = At(call_.send, Block());
  if (source == nullptr) return false;
  double factor = pre_mul_ ? pre_mul_->factor : 1.0;
  if (pre_mul_ && pre_mul_->device != nullptr) {
    const auto pointer = reinterpret_cast<std::uintptr_t>(pre_mul_->device);
    const void* const scalar =
        CudaAccess::Find()->alias(communicator_->device(), pointer, SizeOf(type_));
    if (scalar == nullptr) return false;
    factor = ReadScalar(type_, scalar);
  }
  Multiply(type_, factor, source, world_.chunk(world_.rank()), Length());
  return true;
}

bool Collective::Take() {
  switch (call_.kind) {
    case CollectiveKind::kBroadcast:
      return CopyTo(0, call_.root);
    case CollectiveKind::kAllGather:
      for (int rank = 0; rank < world_.size(); ++rank) {
        if (!CopyTo(static_cast<std::size_t>(rank), rank)) return false;
      }
      return true;
    case CollectiveKind::kReduceScatter:
      return Block() != static_cast<std::size_t>(world_.rank()) || TakeCombined();
    case CollectiveKind::kAllReduce:
      return TakeCombined();
  }
  return false;
}

bool Collective::TakeCombined() {
  void* const destination = At(call_.receive, 0);
  if (destination == nullptr) return false;
  std::vector<const void*> sources;
  for (int rank = 0; rank < world_.size(); ++rank) sources.push_back(world_.chunk(rank));
  CombineAll(type_, pre_mul_ ? kNcclSum : call_.op, sources, destination, Length());
  return true;
}

bool Collective::CopyTo(std::size_t block, int from) {
  void* const destination = At(call_.receive, block);
  if (destination == nullptr) return false;
  std::memcpy(destination, world_.chunk(from), Length() * SizeOf(type_));
  return true;
}

}  // namespace

NcclResult CheckCall(const Communicator& communicator, const CollectiveCall& call) {
  const NcclResult registered = communicator.CheckRegistered();
  if (registered != kNcclSuccess) return registered;
  const std::optional<DataType> type = DataTypeOf(call.type);
  if (!type) return Failed(kNcclInvalidArgument, "there is no such type of data");
  if (call.root < 0 || call.root >= communicator.world().size()) {
    return Failed(kNcclInvalidArgument, "there is no such root");
  }
  const bool combines =
      call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kReduceScatter;
  if (combines && IsFloat8(*type) &&
      CudaAccess::Find()->ComputeMajorOf(communicator.device()) < 9) {
    return Failed(kNcclInvalidArgument, "float8 is reduced from compute capability 9.0 on");
  }
  if (call.op < 0) return Failed(kNcclInvalidArgument, "there is no such operator");
  if (call.op < kNcclBuiltInOps) return kNcclSuccess;
  const std::optional<PreMulSum> made = communicator.FindOperator(call.op);
  if (!made) return Failed(kNcclInvalidArgument, "the communicator has no such operator");
  if (made->type != *type) {
    return Failed(kNcclInvalidArgument, "the operator was made for another type of data");
  }
  return kNcclSuccess;
}

NcclResult Launch(const std::shared_ptr<Communicator>& communicator, const CollectiveCall& call) {
  const CudaAccess* const cuda = CudaAccess::Find();
  if (cuda->stream_device(call.stream) != communicator->device()) {
    return Failed(kNcclUnhandledCudaError, "the stream is not one of the communicator's device");
  }
  auto collective = std::make_unique<Collective>(communicator, call);
  if (cuda->enqueue(call.stream, &Collective::Run, collective.get()) != 0) {
    return Failed(kNcclUnhandledCudaError, "CUDA refuses to launch");
  }
  (void)collective.release();
  return kNcclSuccess;
}

}  // namespace ringd::emulator
