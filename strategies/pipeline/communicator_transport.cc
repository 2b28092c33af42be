// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/communicator_transport.h"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {
namespace {

// Numbers in a header: how many are used, how many tensors, and of each tensor whether it is
// defined (1) and wants a gradient (2), its dtype, its dimensions and their sizes.
constexpr int64_t kHeaderNumbers = 256;

Tensor MakeHeader(const Letter& letter, Device device) {
  std::vector<int64_t> numbers = {0, static_cast<int64_t>(letter.tensors.size())};
  for (size_t i = 0; i < letter.tensors.size(); ++i) {
    const Tensor& tensor = letter.tensors[i];
    numbers.push_back((tensor.defined() ? 1 : 0) + (letter.wants_gradient[i] ? 2 : 0));
    if (!tensor.defined()) continue;
    numbers.push_back(static_cast<int64_t>(tensor.dtype()));
    numbers.push_back(tensor.rank());
    numbers.insert(numbers.end(), tensor.shape().begin(), tensor.shape().end());
  }
  numbers[0] = static_cast<int64_t>(numbers.size());
  if (numbers[0] > kHeaderNumbers) {
    throw InvalidArgumentError(absl::StrCat(
        "the shapes of ", letter.tensors.size(), " tensors take ", numbers[0],
        " numbers and a header has ", kHeaderNumbers, "; hand over fewer tensors, joined"));
  }
  numbers.resize(kHeaderNumbers, 0);
  return FromVector<int64_t>(numbers, {kHeaderNumbers}, {.device = device});
}

// Reads a header number by number. Throws DataLoss.
class HeaderReader {
 public:
  explicit HeaderReader(const Tensor& header) : numbers_(header.ToVector<int64_t>()) {
    end_ = static_cast<size_t>(Next(2, kHeaderNumbers));
  }
  int64_t Next(int64_t least, int64_t most) {
    if (position_ >= end_ || numbers_[position_] < least || numbers_[position_] > most) {
      throw DataLossError(absl::StrCat("pipeline: number ", position_, " of a header is ",
                                       position_ < end_ ? numbers_[position_] : -1,
                                       ", not within [", least, ", ", most, "]"));
    }
    return numbers_[position_++];
  }

 private:
  const std::vector<int64_t> numbers_;
  size_t position_ = 0, end_ = 1;
};

// The letter with tensors that are yet to be filled.
Letter ReadHeader(const Tensor& header, Device device, MemoryCategory category) {
  const CategoryScope scope(category);
  constexpr int64_t kMostElements = int64_t{1} << 48;
  HeaderReader reader(header);
  Letter letter;
  const int64_t count = reader.Next(0, kHeaderNumbers);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t flags = reader.Next(0, 3);
    letter.wants_gradient.push_back((flags & 2) != 0);
    letter.tensors.emplace_back();
    if ((flags & 1) == 0) continue;
    const auto dtype = static_cast<DType>(reader.Next(0, kDTypeCount - 1));
    Shape shape(static_cast<size_t>(reader.Next(0, kHeaderNumbers)), 0);
    for (int64_t& size : shape) size = reader.Next(0, kMostElements);
    letter.tensors.back() = Empty(shape, {.dtype = dtype, .device = device});
  }
  return letter;
}

}  // namespace

struct CommunicatorTransport::Incoming {
  Tensor header;
  comm::Work header_work;
  int64_t tag = 0;
  int peer = 0;
  MemoryCategory category = MemoryCategory::kOther;
  // Below: under the inbox's mutex.
  bool header_is_here = false;
  bool posted = false;  // the receives of its tensors
  std::optional<Error> error;
  Letter letter;
  std::vector<comm::Work> tensor_works;
};

// Posts the receives of tensors in the order of the headers, on whatever threads these complete.
struct CommunicatorTransport::Inbox {
  std::weak_ptr<comm::Communicator> data;
  Device device;
  std::optional<absl::Duration> timeout;
  std::mutex mutex;
  std::condition_variable posted;
  std::map<int, std::deque<std::shared_ptr<Incoming>>> by_peer;  // not posted yet

  void HeaderIsHere(Incoming& incoming, const Error* error) {
    std::lock_guard<std::mutex> lock(mutex);
    incoming.header_is_here = true;
    if (error != nullptr) incoming.error = *error;
    auto& queue = by_peer[incoming.peer];
    while (!queue.empty() && queue.front()->header_is_here) {
      PostTensors(*queue.front());
      queue.pop_front();
    }
    posted.notify_all();
  }

  void PostTensors(Incoming& incoming) {
    incoming.posted = true;
    if (incoming.error.has_value()) return;
    try {
      const std::shared_ptr<comm::Communicator> group = data.lock();
      if (group == nullptr) throw AbortedError("pipeline: the group is gone");
      incoming.letter = ReadHeader(incoming.header, device, incoming.category);
      for (const Tensor& tensor : incoming.letter.tensors) {
        if (!tensor.defined()) continue;
        incoming.tensor_works.push_back(
            group->Recv(tensor, incoming.peer, {.tag = incoming.tag, .timeout = timeout}));
      }
    } catch (const Error& error) {
      incoming.error = error;
    }
  }
};

CommunicatorTransport::CommunicatorTransport(TransportGroups groups, Device device,
                                             int micro_batches,
                                             std::optional<absl::Duration> timeout)
    : groups_(std::move(groups)),
      device_(device),
      micro_batches_(micro_batches),
      timeout_(timeout),
      inbox_(std::make_shared<Inbox>()) {
  inbox_->data = groups_.data;
  inbox_->device = device;
  inbox_->timeout = timeout;
}

CommunicatorTransport::~CommunicatorTransport() {
  if (!expected_.empty()) Fail(AbortedError("pipeline: a run was given up"));
}

int64_t CommunicatorTransport::TagOf(const Address& address) const {
  return int64_t{address.channel} * micro_batches_ + address.micro_batch;
}

void CommunicatorTransport::DropCompletedSends() {
  // Works hold on to their tensors.
  while (!sends_.empty() && sends_.front().IsCompleted()) {
    sends_.front().Wait();
    sends_.pop_front();
  }
}

void CommunicatorTransport::Send(const Address& to, Letter letter) {
  DropCompletedSends();
  const comm::TransferOptions options = {.tag = TagOf(to), .timeout = timeout_};
  sends_.push_back(groups_.headers->Send(MakeHeader(letter, device_), to.peer, options));
  for (const Tensor& tensor : letter.tensors) {
    if (tensor.defined()) sends_.push_back(groups_.data->Send(tensor, to.peer, options));
  }
}

void CommunicatorTransport::Expect(const Address& from) {
  auto incoming = std::make_shared<Incoming>();
  incoming->header = Empty({kHeaderNumbers}, {.dtype = DType::kInt64, .device = device_});
  incoming->tag = TagOf(from);
  incoming->peer = from.peer;
  incoming->category = CurrentThreadState().category;
  {
    std::lock_guard<std::mutex> lock(inbox_->mutex);
    inbox_->by_peer[from.peer].push_back(incoming);
  }
  expected_[incoming->tag] = incoming;
  incoming->header_work = groups_.headers->Recv(incoming->header, from.peer,
                                                {.tag = incoming->tag, .timeout = timeout_});
  incoming->header_work.OnComplete(
      [inbox = inbox_, incoming](const Error* error) { inbox->HeaderIsHere(*incoming, error); });
}

Letter CommunicatorTransport::Take(const Address& from) {
  const auto it = expected_.find(TagOf(from));
  if (it == expected_.end()) throw InternalError("pipeline: a letter that nobody expects");
  const std::shared_ptr<Incoming> incoming = it->second;
  incoming->header_work.Wait();
  {
    std::unique_lock<std::mutex> lock(inbox_->mutex);
    inbox_->posted.wait(lock, [&] { return incoming->posted; });
    if (incoming->error.has_value()) throw Error(*incoming->error);
  }
  for (const comm::Work& work : incoming->tensor_works) work.Wait();
  expected_.erase(it);
  return std::move(incoming->letter);
}

void CommunicatorTransport::Finish() {
  while (!sends_.empty()) {
    sends_.front().Wait();
    sends_.pop_front();
  }
}

void CommunicatorTransport::Fail(const Error& reason) {
  groups_.data->Abort(reason.message());
  groups_.headers->Abort(reason.message());
  // Aborted works end at once; their callbacks are not to find the groups gone.
  const auto end = [](const comm::Work& work) {
    try {
      work.Wait();
    } catch (const Error&) {  // the reason, or its echo
    }
  };
  for (const auto& [tag, incoming] : expected_) end(incoming->header_work);
  std::vector<comm::Work> works;
  {
    std::lock_guard<std::mutex> lock(inbox_->mutex);
    for (const auto& [tag, incoming] : expected_) {
      works.insert(works.end(), incoming->tensor_works.begin(), incoming->tensor_works.end());
    }
  }
  for (const comm::Work& work : works) end(work);
  expected_.clear();
  sends_.clear();
}

}  // namespace lockstep::pipeline
