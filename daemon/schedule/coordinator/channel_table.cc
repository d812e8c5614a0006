#include "daemon/schedule/coordinator/channel_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {

Channel& ChannelTable::Add(std::vector<LearnedTensor> tensors,
                           std::chrono::nanoseconds expected_fill) {
  const std::uint32_t number = next_number_++;
  Channel& channel = channels_[number];
  channel.number = number;
  channel.tensors = std::move(tensors);
  channel.expected_fill = expected_fill;
  channel.filled.assign(node_count_, 0);
  return channel;
}

Channel ChannelTable::Remove(std::uint32_t number) {
  const auto found = channels_.find(number);
  assert(found != channels_.end());
  Channel channel = std::move(found->second);
  channels_.erase(found);
  return channel;
}

void ChannelTable::SetReadiness(
    const std::unordered_map<std::string, std::chrono::nanoseconds>& offsets) {
  for (auto& [number, channel] : channels_) {
    for (LearnedTensor& tensor : channel.tensors) {
      const auto found = offsets.find(tensor.name);
      if (found != offsets.end()) tensor.ready_offset = found->second;
    }
  }
}

Channel* ChannelTable::Find(std::uint32_t number) {
  const auto found = channels_.find(number);
  return found == channels_.end() ? nullptr : &found->second;
}

std::vector<std::uint32_t> ChannelTable::LiveChannels() const {
  std::vector<std::uint32_t> live;
  for (const auto& [number, channel] : channels_) {
    if (!channel.freezing) live.push_back(number);
  }
  return live;
}

absl::StatusOr<bool> ChannelTable::NoteFilled(NodeIndex node, const Filled& filled) {
  const auto index = static_cast<std::size_t>(node.value());
  Channel* channel = Find(filled.channel);
  if (channel == nullptr || !channel->needs_launch() || filled.occurrence != channel->launched ||
      channel->filled[index] != channel->launched ||
      (channel->freezing && channel->frozen[index])) {
    return absl::InternalError(absl::StrCat("node ", node.value(), " has filled occurrence ",
                                            filled.occurrence, " of channel ", filled.channel,
                                            " out of turn"));
  }
  ++channel->filled[index];
  if (++channel->filled_count < node_count_ || channel->freezing) return false;
  ++channel->launched;
  channel->filled_count = 0;
  return true;
}

void ChannelTable::BeginRetirement(Retirement retirement) {
  retirements_.push_back(std::make_unique<Retirement>(std::move(retirement)));
  Retirement* owned = retirements_.back().get();
  for (std::uint32_t number : owned->channels) {
    Channel& channel = channels_.at(number);
    assert(!channel.freezing);
    channel.freezing = true;
    channel.frozen.assign(node_count_, false);
    channel.started.assign(node_count_, 0);
    retirement_of_[number] = owned;
  }
}

Retirement& ChannelTable::RetirementOf(std::uint32_t channel) {
  return *retirement_of_.at(channel);
}

absl::Status ChannelTable::NoteFrozen(NodeIndex node, const Frozen& frozen) {
  const auto index = static_cast<std::size_t>(node.value());
  Channel* channel = Find(frozen.channel);
  if (channel == nullptr || !channel->freezing || channel->frozen[index]) {
    return absl::InternalError(absl::StrCat("node ", node.value(), " froze channel ",
                                            frozen.channel, " without being asked"));
  }
  // Launches and the freeze have come to all nodes in one order.
  if (channel->needs_launch() && frozen.started != channel->launched) {
    return absl::InternalError(absl::StrCat("node ", node.value(), " has started ", frozen.started,
                                            " of the ", channel->launched,
                                            " launched occurrences of channel ", frozen.channel));
  }
  channel->frozen[index] = true;
  channel->started[index] = frozen.started;
  if (++channel->frozen_count == node_count_) ++RetirementOf(frozen.channel).channels_frozen;
  return absl::OkStatus();
}

std::vector<Retirement> ChannelTable::TakeFinishedRetirements() {
  std::vector<Retirement> finished;
  for (auto it = retirements_.begin(); it != retirements_.end();) {
    Retirement& retirement = **it;
    if (retirement.channels_frozen < retirement.channels.size()) {
      ++it;
      continue;
    }
    for (std::uint32_t number : retirement.channels) retirement_of_.erase(number);
    finished.push_back(std::move(retirement));
    it = retirements_.erase(it);
  }
  return finished;
}

}  // namespace ringd
