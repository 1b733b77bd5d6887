// Answers plans of attention's families on 132 SMs. A line of the standard input is a family and its problem, the answer a line
// of name=value, or "-" where the family does not take it. Each family's problem: PROBLEMS in attention_plans.py. tiles: wgmma's;
// mma: its kernel for few rows, many_rows: the one for many.
#include <iostream>
#include <sstream>
#include <string>

#include "attention/decode/plan.h"
#include "attention/mma/plan.h"
#include "attention/simt/plan.h"
#include "attention/tiles/plan.h"
#include "attention/wgmma/tiles.h"

using namespace xgemm::attention;

namespace {

constexpr int kSmCount = 132;

/// Prints name=value pairs; the names are words of one text.
void show(const char* names, std::initializer_list<std::int64_t> values) {
  std::istringstream in(names);
  std::string name;
  for (const std::int64_t value : values) in >> name, std::cout << name << '=' << value << ' ';
}

void simt(std::istream& in) {
  SimtProblem p{.sm_count = kSmCount};
  in >> p.fp64 >> p.batches >> p.rows >> p.key_end >> p.d >> p.dv;
  const SimtPlan q = plan_simt(p);
  show("tile row_tiles splits parallel blocks partials split_keys",
       {q.tile, q.row_tiles, q.splits, q.parallel, q.blocks, q.partials, kSplitKeys});
}

void simt_tile(std::istream& in) {
  std::size_t index = 0;
  in >> index;
  if (index >= std::size(kSimtTiles)) return void(std::cout << '-');
  const SimtTile& t = kSimtTiles[index];
  show("fp64 head_size keys rows blocks shared_bytes", {t.fp64, t.head_size, t.keys, t.rows(), t.blocks, t.shared_bytes()});
}

void show_tiles(const Plan& q) {
  const Tile& t = q.info();
  show(
      "tile packed tile_rows row_tiles tiles section_heads splits split_keys through_memory partial_rows ctas head_size "
      "value_size rows consumers keys",
      {q.tile, q.packed, q.tile_rows, q.row_tiles, q.tiles, q.section_heads, q.splits, q.split_tiles * t.keys, q.through_memory,
       q.partial_rows, q.ctas, t.head_size, t.value_size, t.rows(), t.consumers, t.keys});
}

void tiles(std::istream& in) {
  Problem p{.table = kWgmmaTiles, .possible = true, .sm_count = kSmCount};
  in >> p.batch_invariant >> p.causal >> p.batches >> p.group >> p.sq >> p.sk >> p.d >> p.dv;
  p.key_end = p.sk;
  const auto q = plan_tiles(p);
  q ? show_tiles(*q) : void(std::cout << '-');
}

void mma(std::istream& in) {
  Problem p{.possible = true, .sm_count = kSmCount};
  std::int64_t shared_bytes = 0;
  bool masked = false;
  in >> p.batches >> p.group >> p.sq >> p.sk >> p.d >> p.dv >> shared_bytes >> masked;
  p.masking = masked ? Masking::boolean : Masking::edges;
  p.key_end = p.sk;
  const auto q = plan_few_rows(p, shared_bytes);
  if (!q) return void(std::cout << '-');
  show_tiles(*q);
  show("shares_items shared_bytes alone", {q->shares_items(), mma_shared_bytes(q->info(), masked), q->alone});
}

void many_rows(std::istream& in) {
  Problem p{.possible = true, .sm_count = kSmCount};
  in >> p.batch_invariant >> p.batches >> p.group >> p.sq >> p.sk >> p.d >> p.dv;
  p.key_end = p.sk;
  const auto q = plan_many_rows(p, 227 << 10);
  if (!q) return void(std::cout << '-');
  show_tiles(*q);
  show("items shared_bytes", {q->items(), many_rows_shared_bytes(q->info())});
}

void decode(std::istream& in) {
  SimtProblem p;
  std::int64_t sk = 0, shared_bytes = 0;
  in >> p.fp64 >> p.batches >> p.rows >> sk >> p.key_begin >> p.key_end >> p.d >> p.dv >> shared_bytes;
  const auto q = plan_decode(p, sk, shared_bytes);
  if (!q) return void(std::cout << '-');
  const DecodeTile& t = q->info();
  show("tile row_tiles split_keys first_split splits ctas partial_bytes head_size rows ctas_an_sm keys shared_bytes",
       {q->tile, q->row_tiles, q->split_keys, q->first_split, q->splits, q->ctas, q->partial_bytes, t.head_size, t.rows, t.ctas,
        t.keys(), t.shared_bytes()});
}

}  // namespace

int main() {
  for (std::string family; std::cin >> family; std::cout << std::endl)
    family == "simt"        ? simt(std::cin)
    : family == "simt_tile" ? simt_tile(std::cin)
    : family == "tiles"     ? tiles(std::cin)
    : family == "mma"       ? mma(std::cin)
    : family == "many_rows" ? many_rows(std::cin)
                            : decode(std::cin);
}
