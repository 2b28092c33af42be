// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "lockstep/autograd/accumulate.h"
#include "lockstep/autograd/backward_scope.h"
#include "lockstep/autograd/worker_pool.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/device.h"

namespace lockstep::autograd::internal {
namespace {

constexpr uint64_t kLeafPriority = std::numeric_limits<uint64_t>::max();

// Where gradients of one output meet. On one device they are added as they arrive, because nodes
// run in a fixed order. On several the order of arrival depends on timing, so each contribution has
// a number, and one that comes early waits for those before it: sums never depend on timing.
struct Slot {
  Tensor sum;
  uint32_t next = 0;      // contribution to add next
  uint32_t expected = 0;  // numbers given out
  std::vector<std::pair<uint32_t, Tensor>> early;
};

// A node or a leaf that the seeds lead to.
struct Entry {
  Node* node = nullptr;  // null for a leaf; owned by the tensors and edges that lead to it
  Tensor leaf;
  const NodeCall* call = nullptr;     // start here, with these gradients
  uint64_t priority = kLeafPriority;  // the place in the graph
  bool at_once = true;                // goes first when ready; leaves do
  int worker = 0;
  bool needed = true;
  std::atomic<int> waiting_for{0};                            // contributions still to come
  absl::InlinedVector<Entry*, 2> targets;                     // one an edge; null: goes nowhere
  absl::InlinedVector<uint32_t, 2> numbers;                   // of this entry's contributions
  absl::InlinedVector<std::pair<uint32_t, int>, 1> captures;  // output, index of the result
  std::mutex mutex;                                           // guards slots
  absl::InlinedVector<Slot, 1> slots;                         // one an output

  Device device() const { return node != nullptr ? node->device() : leaf.device(); }
};

struct Earlier {
  bool operator()(const Entry* a, const Entry* b) const {
    if (a->at_once != b->at_once) return b->at_once;
    return a->priority < b->priority;
  }
};

class GraphTask {
 public:
  explicit GraphTask(EngineRequest request) : request_(std::move(request)) {}

  std::vector<Tensor> Run();

 private:
  struct Queue {
    std::priority_queue<Entry*, std::vector<Entry*>, Earlier> ready;
    std::condition_variable wake;
  };

  // Preparation.
  Entry& FindOrAdd(const Edge& edge);
  void Discover();
  void MarkNeeded();
  void AssignWorkers();
  void NumberContributions();
  void LetHooksLookAhead();
  void Start();

  // Execution.
  void StartWorkers();
  void Push(Entry& entry);
  void Loop(int worker);
  void Work(int worker);
  void RunEntry(Entry& entry);
  void RunLeaf(Entry& entry);
  void RunNode(Entry& entry);
  std::vector<Tensor> TakeGradients(Entry& entry);
  void RunOutputHooks(Entry& entry, std::vector<Tensor>& gradients);
  InputMask WantedInputs(const Entry& entry, InputMask* rest) const;
  void Deliver(Entry& target, uint32_t output, uint32_t number, Tensor gradient);
  void Fail();

  bool several() const { return queues_.size() > 1; }

  EngineRequest request_;
  std::deque<Entry> entries_;
  absl::flat_hash_map<const void*, Entry*> index_;
  std::vector<Entry*> ordered_;  // by falling priority, filled when several devices or targets ask
  std::deque<Queue> queues_;     // one a device; 0 is the calling thread's
  std::shared_ptr<BackwardRun> run_;
  CapturedState caller_;
  ThreadState caller_thread_;
  std::vector<Tensor> results_;
  std::mutex rest_mutex_;

  std::mutex mutex_;     // guards what follows, when there are several workers
  int64_t pending_ = 0;  // entries queued or running
  int active_workers_ = 0;
  std::condition_variable idle_;
  bool stop_ = false;
  std::exception_ptr error_;
};

Entry& GraphTask::FindOrAdd(const Edge& edge) {
  auto [it, inserted] = index_.try_emplace(edge.target(), nullptr);
  if (!inserted) return *it->second;
  Entry& entry = entries_.emplace_back();
  it->second = &entry;
  entry.node = edge.node.get();
  entry.leaf = edge.leaf;
  if (entry.node != nullptr) {
    entry.priority = entry.node->sequence();
    entry.at_once = entry.node->RunsAtOnce();
  }
  entry.slots.resize(entry.node != nullptr ? entry.node->outputs().size() : 1);
  return entry;
}

// Finds everything that the seeds and calls lead to.
void GraphTask::Discover() {
  std::vector<Entry*> stack;
  const auto visit = [&](Entry& entry) {
    if (entry.node == nullptr) return;
    const auto& edges = entry.node->edges();
    entry.targets.resize(edges.size(), nullptr);
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].valid() || (entry.call != nullptr && !entry.call->wanted[i])) continue;
      const size_t known = entries_.size();
      Entry& target = FindOrAdd(edges[i]);
      entry.targets[i] = &target;
      if (entries_.size() != known) stack.push_back(&target);
    }
  };
  const auto add_root = [&](const Edge& edge) -> Entry& {
    const size_t known = entries_.size();
    Entry& entry = FindOrAdd(edge);
    if (entries_.size() != known) stack.push_back(&entry);
    return entry;
  };
  for (const NodeCall& call : request_.calls) add_root({call.node, {}, 0}).call = &call;
  for (const Seed& seed : request_.seeds) add_root(seed.edge);
  while (!stack.empty()) {
    Entry& entry = *stack.back();
    stack.pop_back();
    visit(entry);
  }
}

void GraphTask::MarkNeeded() {
  if (request_.targets.empty()) return;
  for (size_t i = 0; i < request_.targets.size(); ++i) {
    const Edge& edge = request_.targets[i];
    const auto it = index_.find(edge.target());
    if (it != index_.end()) it->second->captures.emplace_back(edge.output, static_cast<int>(i));
  }
  // An edge leads from a later node to an earlier one, and leaves come last.
  for (auto it = ordered_.rbegin(); it != ordered_.rend(); ++it) {
    Entry& entry = **it;
    entry.needed = !entry.captures.empty();
    for (const Entry* target : entry.targets) {
      if (target != nullptr && target->needed) entry.needed = true;
    }
  }
}

void GraphTask::AssignWorkers() {
  std::array<int, kDeviceOrdinalCount> worker_of;
  worker_of.fill(-1);
  int workers = 0;
  for (Entry& entry : entries_) {
    if (!entry.needed) continue;
    const Device device = entry.device();
    // Nothing computes on the host: what lies there is the business of whoever asks for it.
    if (device == kHost) continue;
    int& worker = worker_of[device.ordinal()];
    if (worker < 0) worker = workers++;
    entry.worker = worker;
  }
  for (int i = 0; i < std::max(workers, 1); ++i) queues_.emplace_back();
}

void GraphTask::NumberContributions() {
  for (Entry* entry : ordered_) {
    if (!entry->needed || entry->node == nullptr) continue;
    const auto& edges = entry->node->edges();
    entry->numbers.resize(edges.size(), 0);
    for (size_t i = 0; i < edges.size(); ++i) {
      Entry* target = entry->targets[i];
      if (target == nullptr || !target->needed) continue;
      entry->numbers[i] = target->slots[edges[i].output].expected++;
    }
  }
}

// Counts contributions, delivers the seeds and queues what is ready.
void GraphTask::Start() {
  for (Entry& entry : entries_) {
    if (!entry.needed) continue;
    for (Entry* target : entry.targets) {
      if (target != nullptr && target->needed) {
        target->waiting_for.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }
  std::vector<Entry*> roots;
  for (const NodeCall& call : request_.calls) roots.push_back(index_.at(call.node.get()));
  for (Seed& seed : request_.seeds) {
    Entry& entry = *index_.at(seed.edge.target());
    if (!entry.needed) {
      if (request_.rest != nullptr) request_.rest->seeds.push_back(seed);
      continue;
    }
    Slot& slot = entry.slots[seed.edge.output];
    slot.sum = AddGradients(std::move(slot.sum), seed.gradient, request_.create_graph);
    roots.push_back(&entry);
  }
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  for (Entry* root : roots) {
    if (root->waiting_for.load(std::memory_order_relaxed) == 0) Push(*root);
  }
}

std::vector<Tensor> GraphTask::Run() {
  if (request_.capture) results_.resize(request_.targets.size());
  BackwardScope scope(request_.create_graph);
  run_ = scope.run();
  caller_ = scope.caller_state();
  Discover();
  const auto order = [this] {
    for (Entry& entry : entries_) ordered_.push_back(&entry);
    std::sort(ordered_.begin(), ordered_.end(),
              [](const Entry* a, const Entry* b) { return a->priority > b->priority; });
    // Leaves have the highest priority but come after all nodes.
    const auto nodes = std::find_if(ordered_.begin(), ordered_.end(),
                                    [](const Entry* entry) { return entry->node != nullptr; });
    std::rotate(ordered_.begin(), nodes, ordered_.end());
  };
  if (!request_.targets.empty()) order();
  MarkNeeded();
  AssignWorkers();
  if (several()) {
    if (ordered_.empty()) order();
    NumberContributions();
  }
  LetHooksLookAhead();
  Start();
  if (several()) {
    caller_thread_ = CurrentThreadState();
    StartWorkers();
  }
  Loop(0);
  if (several()) {
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait(lock, [this] { return active_workers_ == 0; });
  }
  if (error_) std::rethrow_exception(error_);
  scope.RunCallbacks();
  return std::move(results_);
}

void GraphTask::LetHooksLookAhead() {
  std::lock_guard<std::mutex> lock(run_->mutex);
  if (run_->reaches) return;  // this one is nested
  run_->reaches = [this](const void* target) {
    const auto it = index_.find(target);
    return it != index_.end() && it->second->needed;
  };
}

void GraphTask::StartWorkers() {
  try {
    for (int i = 1; i < static_cast<int>(queues_.size()); ++i) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        ++active_workers_;
      }
      try {
        RunOnWorker([this, i] { Work(i); });
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex_);
        --active_workers_;
        throw;
      }
    }
  } catch (...) {  // no thread to be had: those that run stop, and Run() rethrows
    Fail();
  }
}

void GraphTask::Push(Entry& entry) {
  Queue& queue = queues_[entry.worker];
  if (!several()) {
    queue.ready.push(&entry);
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  queue.ready.push(&entry);
  ++pending_;
  queue.wake.notify_one();
}

// A worker of the pool: the caller's thread state, and this task's on top.
void GraphTask::Work(int worker) {
  {
    ScopedThreadState state(caller_thread_);
    Loop(worker);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (--active_workers_ == 0) idle_.notify_all();
}

void GraphTask::Loop(int worker) {
  Queue& queue = queues_[worker];
  if (!several()) {
    while (!queue.ready.empty()) {
      Entry& entry = *queue.ready.top();
      queue.ready.pop();
      RunEntry(entry);
    }
    return;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    queue.wake.wait(lock, [&] { return stop_ || pending_ == 0 || !queue.ready.empty(); });
    if (stop_ || queue.ready.empty()) return;
    Entry& entry = *queue.ready.top();
    queue.ready.pop();
    lock.unlock();
    try {
      RunEntry(entry);
    } catch (...) {
      Fail();
    }
    lock.lock();
    if (--pending_ == 0) {
      for (Queue& other : queues_) other.wake.notify_all();
    }
  }
}

// Called in a handler: keeps the first exception and stops all workers.
void GraphTask::Fail() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!error_) error_ = std::current_exception();
  stop_ = true;
  for (Queue& queue : queues_) queue.wake.notify_all();
}

void GraphTask::RunEntry(Entry& entry) {
  if (entry.node != nullptr) {
    RunNode(entry);
  } else {
    RunLeaf(entry);
  }
}

void GraphTask::RunLeaf(Entry& entry) {
  ApplyState(caller_, entry.leaf.device(), request_.create_graph);
  Tensor gradient = std::move(entry.slots[0].sum);
  if (!request_.capture) {
    return AccumulateIntoLeaf(entry.leaf, std::move(gradient), request_.create_graph);
  }
  const AutogradMeta& meta = *MetaOf(entry.leaf);
  std::shared_ptr<HookRegistry> hooks;
  if (meta.slot) {
    std::lock_guard<std::mutex> lock(meta.slot->mutex);
    hooks = meta.hooks;
  }
  if (hooks && gradient.defined()) gradient = RunGradHooks(*hooks, std::move(gradient), "a leaf");
  for (const auto& [output, result] : entry.captures) results_[result] = gradient;
}

std::vector<Tensor> GraphTask::TakeGradients(Entry& entry) {
  if (entry.call != nullptr) return entry.call->gradients;
  std::vector<Tensor> gradients(entry.slots.size());
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = std::move(entry.slots[i].sum);
  if (entry.node->has_output_hooks()) RunOutputHooks(entry, gradients);
  if (request_.capture) {
    for (const auto& [output, result] : entry.captures) results_[result] = gradients[output];
  }
  return gradients;
}

void GraphTask::RunOutputHooks(Entry& entry, std::vector<Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const Node::OutputHooks hooks = entry.node->GetOutputHooks(static_cast<uint32_t>(i));
    if (hooks.hooks) {
      gradients[i] =
          RunGradHooks(*hooks.hooks, std::move(gradients[i]), entry.node->Name().c_str());
    }
    if (hooks.retained) {
      AccumulateIntoSlot(*hooks.retained, gradients[i], request_.create_graph);
    }
  }
}

// The inputs to compute gradients for now, and those that are left for the other half.
InputMask GraphTask::WantedInputs(const Entry& entry, InputMask* rest) const {
  InputMask wanted;
  for (size_t i = 0; i < entry.targets.size(); ++i) {
    if (entry.targets[i] == nullptr) continue;
    (entry.targets[i]->needed ? wanted : *rest).Set(static_cast<int>(i));
  }
  return wanted;
}

void GraphTask::RunNode(Entry& entry) {
  Node& node = *entry.node;
  ApplyState(node.state(), node.state().device, request_.create_graph);
  std::vector<Tensor> gradients = TakeGradients(entry);
  InputMask rest;
  const InputMask wanted = WantedInputs(entry, &rest);
  const bool any_defined =
      std::any_of(gradients.begin(), gradients.end(), [](const Tensor& g) { return g.defined(); });
  const bool split = request_.rest != nullptr && rest.any() && any_defined;
  if (split) {
    std::lock_guard<std::mutex> lock(rest_mutex_);
    request_.rest->calls.push_back({RefPtr<Node>(&node), gradients, rest});
  }
  const auto& edges = node.edges();
  absl::InlinedVector<Tensor, 4> results(edges.size());
  if (any_defined && wanted.any()) {
    try {
      node.Apply(absl::MakeSpan(gradients), wanted, request_.create_graph, absl::MakeSpan(results));
    } catch (const Error& error) {
      const std::string where = several() ? " on " + ToString(node.device()) : std::string();
      throw error.WithContext("backward of " + node.Name() + where);
    }
    if (!request_.keep_graph && !split) node.ReleaseSaved();
  }
  // Gone before the results are handed on, so that a result that is an incoming gradient has one
  // owner and can be added to in place.
  gradients.clear();
  for (size_t i = 0; i < edges.size(); ++i) {
    Entry* target = entry.targets[i];
    if (target == nullptr || !target->needed) continue;
    Deliver(*target, edges[i].output, several() ? entry.numbers[i] : 0, std::move(results[i]));
  }
}

void GraphTask::Deliver(Entry& target, uint32_t output, uint32_t number, Tensor gradient) {
  Slot& slot = target.slots[output];
  if (!several()) {
    slot.sum = AddGradients(std::move(slot.sum), std::move(gradient), request_.create_graph);
  } else {
    std::lock_guard<std::mutex> lock(target.mutex);
    slot.early.emplace_back(number, std::move(gradient));
    for (;;) {
      const auto next = std::find_if(slot.early.begin(), slot.early.end(),
                                     [&](const auto& early) { return early.first == slot.next; });
      if (next == slot.early.end()) break;
      Tensor addend = std::move(next->second);
      slot.early.erase(next);
      ++slot.next;
      slot.sum = AddGradients(std::move(slot.sum), std::move(addend), request_.create_graph);
    }
  }
  if (target.waiting_for.fetch_sub(1, std::memory_order_acq_rel) == 1) Push(target);
}

}  // namespace

std::vector<Tensor> RunEngine(EngineRequest request) { return GraphTask(std::move(request)).Run(); }

}  // namespace lockstep::autograd::internal
