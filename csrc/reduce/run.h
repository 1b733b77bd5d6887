// Runs a planned reduction on an op's stream, with the memory that it needs.
#pragma once
#include "reduce/launch.h"
#include "torch/cuda.h"

namespace xgemm::reduce {

inline void run(const Plan& plan, const void* in, void* out, const CudaScope& scope) {
  const MeetingPlace place = scope.meeting_place(plan.counter_bytes, plan.workspace_bytes - plan.counter_bytes);
  launch(plan, in, out, Workspace{place.counters, place.partials}, scope.stream());
  scope.check_launch();
}

}  // namespace xgemm::reduce
