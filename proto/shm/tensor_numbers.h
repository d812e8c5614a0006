// Numbers for the names of tensors in a job's segment.
#ifndef RINGD_PROTO_SHM_TENSOR_NUMBERS_H_
#define RINGD_PROTO_SHM_TENSOR_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ringd {

// A name has its number as long as somebody holds it, and after that until all other numbers are
// taken: then the one that nobody has held for longest becomes another name's. Its count of
// occurrences goes on: whoever gives a name up has ended what was submitted under it, and so have
// the other members.
//
// Thread safety: none.
class TensorNumbers {
 public:
  // `most`: so many numbers, from 0 on.
  explicit TensorNumbers(std::uint32_t most) : most_(most) {}

  // One more holds the name. Nothing if all numbers are held.
  std::optional<std::uint32_t> Hold(const std::string& name);
  // One less does. Requirement: somebody holds it.
  void Release(std::uint32_t number);

  // Numbers given so far; all are below that.
  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(entries_.size()); }
  // Of all names that have a number.
  std::uint64_t name_bytes() const noexcept { return name_bytes_; }
  // Nothing if there is no such number.
  std::optional<std::string> NameOf(std::uint32_t number) const;
  std::optional<std::uint32_t> Find(const std::string& name) const;

 private:
  struct Entry {
    std::string name;
    std::uint32_t holders = 0;
    bool is_idle = false;  // it stands in idle_
  };

  std::optional<std::uint32_t> TakeNumber();

  const std::uint32_t most_;
  std::vector<Entry> entries_;  // by number
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::deque<std::uint32_t> idle_;  // nobody held them for a while; not held for longest, first
  std::uint64_t name_bytes_ = 0;
};

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_TENSOR_NUMBERS_H_
