// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/flight_record_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/socket.h"
#include "lockstep/tensor/dtype.h"
#include "nlohmann/json.hpp"

namespace lockstep::comm {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kFormat = "lockstep flight record 1";
constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

// ---- Names ----

constexpr CallState kStates[] = {CallState::kIssued, CallState::kStarted, CallState::kCompleted,
                                 CallState::kFailed};

std::string StatusName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

// The value in [0, count) that has this name.
template <typename Enum, typename Name>
Enum Named(const Json& json, int count, const Name& name_of) {
  const auto text = json.get<std::string>();
  for (int i = 0; i < count; ++i) {
    if (absl::string_view(name_of(static_cast<Enum>(i))) == text) return static_cast<Enum>(i);
  }
  throw DataLossError(absl::StrCat("nothing is called \"", text, "\""));
}

// ---- Signatures ----

Json SignatureJson(const Signature& s) {
  Json json = {{"op", std::string(CollectiveName(s.op))},
               {"dtype", std::string(DTypeName(s.dtype))},
               {"count", s.count}};
  if (s.reduces) json["reduction"] = std::string(ReduceOpName(s.reduce_op));
  if (s.factor != 1) json["factor"] = s.factor;
  if (s.root >= 0) json["root"] = s.root;
  if (s.peer >= 0) json["peer"] = s.peer;
  if (s.tag != 0) json["tag"] = s.tag;
  if (s.tensors > 0) {
    json["tensors"] = s.tensors;
    json["list"] = s.list;
  }
  return json;
}

Signature ParseSignature(const Json& json) {
  Signature s;
  s.op = Named<CollectiveId>(json.at("op"), static_cast<int>(CollectiveId::kCount), CollectiveName);
  s.dtype = Named<DType>(json.at("dtype"), kDTypeCount, DTypeName);
  s.count = json.at("count").get<int64_t>();
  s.reduces = json.contains("reduction");
  if (s.reduces) s.reduce_op = Named<ReduceOp>(json["reduction"], kReduceOpCount, ReduceOpName);
  s.factor = json.value("factor", 1.0);
  s.root = json.value("root", -1);
  s.peer = json.value("peer", -1);
  s.tag = json.value("tag", int64_t{0});
  s.tensors = json.value("tensors", 0);
  s.list = json.value("list", uint64_t{0});
  return s;
}

// ---- Calls ----

Json CallJson(const FlightCall& call) {
  Json json = {{"number", call.number}, {"call", call.ToString()}};
  json.update(SignatureJson(call.signature));
  if (call.signature.uneven) json["counts"] = call.counts;
  json["bytes"] = call.bytes;
  json["state"] = std::string(CallStateName(call.state));
  json["issued_ns"] = call.issued_ns;
  json["started_ns"] = call.started_ns;
  json["ended_ns"] = call.ended_ns;
  return json;
}

FlightCall ParseCall(const Json& json) {
  FlightCall call;
  call.number = json.at("number").get<int64_t>();
  call.signature = ParseSignature(json);
  if (json.contains("counts")) {
    call.signature.uneven = true;
    call.counts = json["counts"].get<std::vector<int64_t>>();
  }
  call.bytes = json.at("bytes").get<int64_t>();
  call.state =
      Named<CallState>(json.at("state"), static_cast<int>(std::size(kStates)), CallStateName);
  call.issued_ns = json.at("issued_ns").get<int64_t>();
  call.started_ns = json.at("started_ns").get<int64_t>();
  call.ended_ns = json.at("ended_ns").get<int64_t>();
  return call;
}

void CheckMembers(const FlightRecord& record) {
  if (record.size < 1 || record.rank < 0 || record.rank >= record.size ||
      record.world_ranks.size() != static_cast<size_t>(record.size)) {
    throw DataLossError(absl::StrCat("rank ", record.rank, " of ", record.size, " with ",
                                     record.world_ranks.size(), " world ranks"));
  }
  for (const FlightCall& call : record.calls) {
    if (call.signature.peer >= record.size) {
      throw DataLossError(absl::StrCat("rank ", call.signature.peer, " of ", record.size));
    }
  }
}

FlightRecord ParseDocument(const Json& json) {
  if (json.at("format").get<std::string>() != kFormat) throw DataLossError("another format");
  FlightRecord record;
  record.group = json.at("group").get<std::string>();
  record.key = json.at("key").get<std::string>();
  record.rank = json.at("rank").get<int>();
  record.size = json.at("size").get<int>();
  record.world_ranks = json.at("world_ranks").get<std::vector<int>>();
  record.process = json.at("process").get<int64_t>();
  record.anchor_monotonic_ns = json.at("anchor_monotonic_ns").get<int64_t>();
  record.anchor_wall_ns = json.at("anchor_wall_ns").get<int64_t>();
  record.written_monotonic_ns = json.at("written_monotonic_ns").get<int64_t>();
  record.collectives_issued = json.at("collectives_issued").get<int64_t>();
  record.collectives_completed = json.at("collectives_completed").get<int64_t>();
  if (!json.at("error").is_null()) {
    record.error_code = Named<absl::StatusCode>(json["error"].at("code"), 17, StatusName);
    record.error = json["error"].at("message").get<std::string>();
  }
  record.forgotten = json.at("forgotten").get<int64_t>();
  for (const Json& call : json.at("calls")) record.calls.push_back(ParseCall(call));
  CheckMembers(record);
  return record;
}

// ---- Files ----

void WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const std::string text =
          absl::StrCat("flight record: cannot write ", path, ": ", ErrnoText(errno));
      if (errno == ENOSPC || errno == EDQUOT) throw ResourceExhaustedError(text);
      throw UnavailableError(text);
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

std::string ToJson(const FlightRecord& record) {
  Json json = {{"format", std::string(kFormat)},
               {"group", record.group},
               {"key", record.key},
               {"rank", record.rank},
               {"size", record.size},
               {"world_ranks", record.world_ranks},
               {"process", record.process},
               {"anchor_monotonic_ns", record.anchor_monotonic_ns},
               {"anchor_wall_ns", record.anchor_wall_ns},
               {"written_monotonic_ns", record.written_monotonic_ns},
               {"collectives_issued", record.collectives_issued},
               {"collectives_completed", record.collectives_completed},
               {"error", nullptr},
               {"forgotten", record.forgotten}};
  if (record.error_code != absl::StatusCode::kOk) {
    json["error"] = {{"code", StatusName(record.error_code)}, {"message", record.error}};
  }
  constexpr auto kReplace = Json::error_handler_t::replace;  // a name may hold any bytes
  std::string text = json.dump(-1, ' ', false, kReplace);
  text.pop_back();  // the brace
  text += ", \"calls\": [";
  for (size_t i = 0; i < record.calls.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "\n" : ",\n",
                    CallJson(record.calls[i]).dump(-1, ' ', false, kReplace));
  }
  return text + "\n]}\n";
}

namespace {

// What is wrong with a file of so many bytes, in words that need no knowledge of the parser.
std::string WhatIsWrong(const std::exception& error, size_t bytes) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->message();
  if (const auto* syntax = dynamic_cast<const Json::parse_error*>(&error)) {
    if (syntax->byte > bytes) return absl::StrCat("it is cut off after ", bytes, " bytes");
    return absl::StrCat("byte ", syntax->byte, " of ", bytes, " fits no JSON");
  }
  // "[json.exception.out_of_range.403] key 'size' not found"
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace

FlightRecord ParseFlightRecord(absl::string_view json, absl::string_view name) {
  try {
    return ParseDocument(Json::parse(json.begin(), json.end()));
  } catch (const std::exception& error) {  // of the parser, of a field that is missing, or ours
    throw DataLossError(
        absl::StrCat(name, " is no whole flight record: ", WhatIsWrong(error, json.size())));
  }
}

std::string FlightRecordFileName(absl::string_view group, int rank) {
  std::string safe(group);
  bool changed = safe.front() == '.';
  if (changed) safe.front() = '_';
  for (char& c : safe) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.') {
      continue;
    }
    c = '_';
    changed = true;
  }
  if (changed) absl::StrAppend(&safe, "-", absl::Hex(Hash64(group) & 0xffffffffu, absl::kZeroPad8));
  return absl::StrCat(safe, ".rank", rank, ".json");
}

std::string WriteFlightRecord(const FlightRecord& record, const std::string& folder) {
  const std::string path =
      absl::StrCat(folder, "/", FlightRecordFileName(record.group, record.rank));
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    const std::string text =
        absl::StrCat("flight record: cannot write ", temporary, ": ", ErrnoText(errno));
    if (errno == ENOENT || errno == ENOTDIR) throw NotFoundError(text);
    throw UnavailableError(text);
  }
  try {
    WriteAll(fd.get(), ToJson(record), temporary);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    throw UnavailableError(
        absl::StrCat("flight record: cannot rename ", temporary, ": ", ErrnoText(error)));
  }
  return path;
}

FlightRecord ReadFlightRecord(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw NotFoundError(absl::StrCat("flight record: cannot read ", path));
  if (file.tellg() > kMaxFileBytes) {
    throw DataLossError(absl::StrCat(path, " has more than ", kMaxFileBytes, " bytes"));
  }
  file.seekg(0);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return ParseFlightRecord(text, path);
}

}  // namespace lockstep::comm
