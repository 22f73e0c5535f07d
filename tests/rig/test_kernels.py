"""The rig's kernels against definitions written as plainly as possible."""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
SITE = str(Path(__file__).parent / "site")
sys.path.insert(0, SITE)

from sgl_kernel import (  # noqa: E402
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    build_tree_kernel_efficient_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
    top_k_renorm_prob,
    top_p_renorm_prob,
    tree_speculative_sampling_target_only,
    verify_tree_greedy_cpu,
)
from sgl_kernel.attention import decode_attention_cpu, extend_attention_cpu  # noqa: E402
from sgl_kernel.hashing import murmur_hash32_cpu  # noqa: E402

sys.path.remove(SITE)

STEPS, COUNT = 3, 8


class Tree:
    """A random draft tree, and its tables as SGLang's draft loop would hand them over.

    ``paths[i]`` are the tree tokens from the root to token i, both included.
    """

    def __init__(self, seed: int, topk: int, count: int = COUNT, steps: int = STEPS) -> None:
        rng = random.Random(seed)
        self.topk, self.count, self.steps = topk, count, steps
        # Flat positions of all candidates, per step; those that step goes on from; their parents.
        layers = [list(range(topk))]
        parent_of: dict[int, int | None] = dict.fromkeys(layers[0])
        self.parent_list = [-1, *layers[0]]
        frontier = layers[0]
        for step in range(1, steps):
            start = topk + (step - 1) * topk * topk
            layer = list(range(start, start + topk * topk))
            for i, candidate in enumerate(layer):
                parent_of[candidate] = frontier[i // topk]
            layers.append(layer)
            frontier = sorted(rng.sample(layer, topk))
            self.parent_list += frontier
        self.parent_list = self.parent_list[: 1 + topk * (steps - 1)]

        # Keep candidates whose parents are kept, as the highest cumulative scores do.
        kept: set[int] = set()
        while len(kept) < count - 1:
            open_now = [
                c for c, p in parent_of.items() if c not in kept and (p is None or p in kept)
            ]
            kept.add(rng.choice(open_now))
        self.selected = sorted(kept)
        place = {candidate: i + 1 for i, candidate in enumerate(self.selected)}
        self.parents = [-1]
        self.paths = [[0]]
        for candidate in self.selected:
            above = parent_of[candidate]
            parent = 0 if above is None else place[above]
            self.parents.append(parent)
            self.paths.append([*self.paths[parent], len(self.paths)])

    def children(self, token: int) -> list[int]:
        return [i for i in range(1, self.count) if self.parents[i] == token]


def build(trees: list[Tree], lengths: list[int], mode: int = 1) -> dict[str, Any]:
    count, batch = trees[0].count, len(trees)
    size = sum(count * (count + (length if mode == 0 else 0)) for length in lengths)
    links = torch.full((3, batch, count), -1)
    out = {
        "mask": torch.ones(size, dtype=torch.bool),
        "positions": torch.zeros(batch * count, dtype=torch.long),
        "index": links[0],
        "next": links[1],
        "sibling": links[2],
    }
    build_tree_kernel_efficient_cpu(
        torch.tensor([t.parent_list for t in trees]),
        torch.tensor([t.selected for t in trees]),
        torch.tensor(lengths),
        out["mask"],
        out["positions"],
        out["index"],
        out["next"],
        out["sibling"],
        trees[0].topk,
        trees[0].steps,
        count,
        mode,
    )
    return out


TREES = [(seed, topk) for seed in range(4) for topk in (2, 4)]


@pytest.mark.parametrize(("seed", "topk"), TREES)
def test_tree_tables(seed: int, topk: int) -> None:
    trees, lengths = [Tree(seed, topk), Tree(seed + 100, topk)], [5, 11]
    out = build(trees, lengths)
    masks = out["mask"].view(2, COUNT, COUNT)
    for request, tree in enumerate(trees):
        assert out["index"][request].tolist() == [request * COUNT + i for i in range(COUNT)]
        for token in range(COUNT):
            seen = [i for i in range(COUNT) if masks[request, token, i]]
            assert seen == sorted(tree.paths[token])
            depth = len(tree.paths[token]) - 1
            assert out["positions"][request * COUNT + token] == lengths[request] + depth
            children, child = [], int(out["next"][request, token])
            while child != -1:
                children.append(child)
                child = int(out["sibling"][request, child])
            assert children == tree.children(token)


def test_a_chain_is_a_tree_with_one_branch() -> None:
    tree = Tree(0, topk=1, count=4)
    out = build([tree], [7])
    assert out["positions"].tolist() == [7, 8, 9, 10]
    assert out["next"].tolist() == [[1, 2, 3, -1]]
    assert torch.equal(out["mask"].view(4, 4), torch.ones(4, 4, dtype=torch.bool).tril())


def test_full_mask_keeps_the_prefix_visible() -> None:
    trees, lengths = [Tree(1, 4), Tree(2, 4)], [3, 6]
    full, short = build(trees, lengths, mode=0)["mask"], build(trees, lengths)["mask"]
    offset = 0
    for request, length in enumerate(lengths):
        block = full[offset : offset + COUNT * (COUNT + length)].view(COUNT, COUNT + length)
        offset += block.numel()
        assert block[:, :length].all()
        assert torch.equal(block[:, length:], short.view(2, COUNT, COUNT)[request])


def longest_match(tree: Tree, tokens: list[int], wanted: list[int]) -> list[int]:
    """Brute force: the longest path on which every token is what its parent wanted."""
    return max(
        (
            path
            for path in tree.paths
            if all(tokens[b] == wanted[a] for a, b in itertools.pairwise(path))
        ),
        key=len,
    )


def distinct_siblings(tree: Tree, rng: random.Random, alphabet: int) -> list[int]:
    """Draft tokens in which no two siblings are the same."""
    tokens = [0] * tree.count
    for token in range(tree.count):
        children = tree.children(token)
        for child, value in zip(children, rng.sample(range(alphabet), len(children)), strict=True):
            tokens[child] = value
    return tokens


@pytest.mark.parametrize("seed", range(30))
def test_greedy_verification(seed: int) -> None:
    rng = random.Random(seed)
    trees = [Tree(seed, 4), Tree(seed + 100, 4)]
    out = build(trees, [5, 9])
    tokens = [distinct_siblings(tree, rng, 7) for tree in trees]
    wanted = [[rng.randrange(3) for _ in range(COUNT)] for _ in trees]
    predicts = torch.full((2 * COUNT,), -7, dtype=torch.int32)
    accept_index = torch.full((2, STEPS + 1), -1, dtype=torch.int32)
    accepted = torch.zeros(2, dtype=torch.int32)
    verify_tree_greedy_cpu(
        predicts,
        accept_index,
        accepted,
        torch.tensor(tokens),
        out["index"],
        out["next"],
        out["sibling"],
        torch.tensor(wanted),
    )
    for request, tree in enumerate(trees):
        path = longest_match(tree, tokens[request], wanted[request])
        flat = [request * COUNT + i for i in path]
        assert accepted[request] == len(path) - 1
        assert accept_index[request].tolist() == flat + [-1] * (STEPS + 1 - len(path))
        assert predicts[flat].tolist() == [wanted[request][i] for i in path]


def test_sampled_verification_follows_the_target() -> None:
    """Over all coins, the first emitted token has the target's distribution at the root."""
    rng = random.Random(3)
    tree, draws = Tree(3, 4), 20000
    out = build([tree], [5])
    vocab = 6
    tokens = distinct_siblings(tree, rng, vocab)
    probs = torch.softmax(torch.randn(COUNT, vocab, generator=torch.Generator().manual_seed(0)), -1)
    generator = torch.Generator().manual_seed(1)
    predicts = torch.zeros(draws * COUNT, dtype=torch.int32)
    accept_index = torch.full((draws, STEPS + 1), -1, dtype=torch.int32)
    accepted = torch.zeros(draws, dtype=torch.int32)
    index = torch.arange(draws * COUNT).view(draws, COUNT)
    tree_speculative_sampling_target_only(
        predicts,
        accept_index,
        accepted,
        torch.tensor([tokens]).expand(draws, -1),
        index,
        out["next"].expand(draws, -1),
        out["sibling"].expand(draws, -1),
        torch.rand(draws, COUNT, generator=generator),
        torch.rand(draws, generator=generator),
        probs[None].expand(draws, -1, -1),
        torch.zeros(1),
    )
    first = predicts[accept_index[:, 0].long()]
    share = torch.bincount(first.long(), minlength=vocab) / draws
    assert torch.allclose(share, probs[0], atol=0.015)
    hopeful = sum(float(probs[0, tokens[child]]) for child in tree.children(0))
    assert abs(float((accepted > 0).float().mean()) - hopeful) < 0.015

    # The second token, where a draft was accepted, follows the target's distribution there.
    child = tree.children(0)[0]
    taken = (accept_index[:, 1] % COUNT == child) & (accepted > 0)
    second = predicts[accept_index[taken, 1].long()]
    share = torch.bincount(second.long(), minlength=vocab) / int(taken.sum())
    assert torch.allclose(share, probs[child], atol=0.04)


def test_certain_targets_are_sampled_greedily() -> None:
    rng = random.Random(5)
    tree = Tree(5, 4)
    out = build([tree], [5])
    tokens = distinct_siblings(tree, rng, 6)
    wanted = [rng.randrange(6) for _ in range(COUNT)]
    probs = torch.nn.functional.one_hot(torch.tensor(wanted), 6).float()
    predicts = torch.zeros(COUNT, dtype=torch.int32)
    accept_index = torch.full((1, STEPS + 1), -1, dtype=torch.int32)
    accepted = torch.zeros(1, dtype=torch.int32)
    tree_speculative_sampling_target_only(
        predicts,
        accept_index,
        accepted,
        torch.tensor([tokens]),
        out["index"],
        out["next"],
        out["sibling"],
        torch.full((1, COUNT), 0.5),
        torch.full((1,), 0.5),
        probs[None],
        torch.zeros(1),
    )
    path = longest_match(tree, tokens, wanted)
    assert int(accepted) == len(path) - 1
    assert predicts[path].tolist() == [wanted[i] for i in path]


def test_renormalisation() -> None:
    probs = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]])
    kept = top_k_renorm_prob(probs, torch.tensor([2, 4]))
    assert torch.allclose(kept, torch.tensor([[0.625, 0.375, 0, 0], [0.1, 0.2, 0.3, 0.4]]))
    kept = top_p_renorm_prob(probs, torch.tensor([0.75, 0.3]))
    assert torch.allclose(kept, torch.tensor([[0.625, 0.375, 0, 0], [0, 0, 0, 1.0]]))


def reference_attention(
    query: Any, keys: Any, values: Any, scale: float, cap: float, sink: float | None
) -> Any:
    """One query, one head: query (D,), keys (K, D), values (K, V)."""
    scores = keys @ query * scale
    if cap > 0:
        scores = cap * torch.tanh(scores / cap)
    weights = scores.exp()
    total = weights.sum() + (0.0 if sink is None else torch.tensor(sink).exp())
    return (weights[:, None] * values).sum(0) / total


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(
    ("window", "cap", "sinks"), [(0, 0.0, False), (3, 0.0, False), (0, 2.0, True)]
)
def test_decode_attention(groups: int, window: int, cap: float, sinks: bool) -> None:
    torch.manual_seed(0)
    heads, width, value_width, lengths = 4, 8, 5, [4, 1, 9]
    k_buffer, v_buffer = torch.randn(40, groups, width), torch.randn(40, groups, value_width)
    table = torch.randperm(40)[:36].view(3, 12).int()
    slots = torch.tensor([2, 0, 1])
    query, key = torch.randn(3, heads, width), torch.randn(3, groups, width)
    value, out = torch.randn(3, groups, value_width), torch.zeros(3, heads, value_width)
    sink = torch.randn(heads) if sinks else None
    loc = torch.stack([table[slot, n - 1] for slot, n in zip(slots, lengths, strict=True)]).long()
    decode_attention_cpu(
        *(query, k_buffer, v_buffer, 1.0, 1.0, out, key, value, loc, torch.zeros(0)),
        *(table, slots, torch.tensor(lengths), 0.3, cap, False, window, None, sink),
    )
    assert torch.equal(k_buffer[loc], key)
    assert torch.equal(v_buffer[loc], value)
    for request, head in itertools.product(range(3), range(heads)):
        rows = table[slots[request], : lengths[request]].long()
        rows = rows[-window:] if window else rows
        group = head * groups // heads
        expected = reference_attention(
            query[request, head],
            k_buffer[rows, group],
            v_buffer[rows, group],
            0.3,
            cap,
            None if sink is None else float(sink[head]),
        )
        assert torch.allclose(out[request, head], expected, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("in_buffers", [False, True])
@pytest.mark.parametrize("new", [[4, 4, 4], [2, 5, 3]])
@pytest.mark.parametrize("window", [0, 3])
def test_extend_attention(masked: bool, in_buffers: bool, new: list[int], window: int) -> None:
    torch.manual_seed(1)
    heads, groups, width, value_width, prefixes = 4, 2, 8, 5, [6, 0, 3]
    totals = [p + n for p, n in zip(prefixes, new, strict=True)]
    starts = [0, new[0], new[0] + new[1]]
    k_buffer, v_buffer = torch.randn(40, groups, width), torch.randn(40, groups, value_width)
    table = torch.randperm(40)[:36].view(3, 12).int()
    slots = torch.tensor([1, 2, 0])
    count = sum(new)
    query, out = torch.randn(count, heads, width), torch.zeros(count, heads, value_width)
    key, value = torch.randn(count, groups, width), torch.randn(count, groups, value_width)
    if in_buffers:
        for request in range(3):
            rows = table[slots[request], prefixes[request] : totals[request]].long()
            span = slice(starts[request], starts[request] + new[request])
            k_buffer[rows], v_buffer[rows] = key[span], value[span]
    blocks = [torch.rand(n, n) < 0.5 for n in new]
    for block in blocks:
        block.fill_diagonal_(True)
    mask = torch.cat([block.reshape(-1) for block in blocks]) if masked else None
    extend_attention_cpu(
        *(query, None if in_buffers else key, None if in_buffers else value, out),
        *(k_buffer, v_buffer, 1.0, 1.0, table, slots, torch.tensor(totals), torch.tensor(new)),
        *(torch.tensor(starts), max(new), 0.3, 0.0, False, window, None, None, mask, True),
    )
    for request in range(3):
        prefix = prefixes[request]
        rows = table[slots[request], :prefix].long()
        span = slice(starts[request], starts[request] + new[request])
        keys = torch.cat([k_buffer[rows], key[span]])
        values = torch.cat([v_buffer[rows], value[span]])
        for token, head in itertools.product(range(new[request]), range(heads)):
            seen = [
                position
                for position in range(totals[request])
                if (window == 0 or prefix + token - position < window)
                and (
                    position < prefix
                    or (
                        bool(blocks[request][token, position - prefix])
                        if masked
                        else position - prefix <= token
                    )
                )
            ]
            group = head * groups // heads
            expected = reference_attention(
                query[starts[request] + token, head],
                keys[seen, group],
                values[seen, group],
                0.3,
                0.0,
                None,
            )
            assert torch.allclose(out[starts[request] + token, head], expected, atol=1e-5)


def test_cache_locations_are_written_and_read_back() -> None:
    table = torch.zeros((4, 10), dtype=torch.int32)
    slots, starts, ends = torch.tensor([2, 0]), torch.tensor([1, 3]), torch.tensor([4, 5])
    rows = torch.tensor([11, 12, 13, 21, 22])
    assign_req_to_token_pool_cpu(slots, table, starts, ends, rows, 10)
    assert table[2].tolist() == [0, 11, 12, 13, 0, 0, 0, 0, 0, 0]
    assert table[0].tolist() == [0, 0, 0, 21, 22, 0, 0, 0, 0, 0]
    back = torch.zeros(5, dtype=torch.long)
    assign_extend_cache_locs_cpu(slots, table, starts, ends, back, 10)
    assert torch.equal(back, rows)


def test_draft_branches_own_consecutive_rows() -> None:
    table = torch.arange(40, dtype=torch.int32).view(2, 20)
    slots, lengths = torch.tensor([1, 0]), torch.tensor([3, 5])
    rows = torch.zeros(2 * 2 * 3, dtype=torch.long)
    assign_draft_cache_locs_contiguous_cpu(slots, table, lengths, rows, 20, 2, 3)
    assert rows.tolist() == [23, 24, 25, 26, 27, 28, 5, 6, 7, 8, 9, 10]
    branches = build_draft_decode_metadata_cpu(table, slots, lengths, 2, 3, 20)
    assert branches.shape == (4, 20)
    assert branches[0, :6].tolist() == [20, 21, 22, 23, 24, 25]
    assert branches[1, :6].tolist() == [20, 21, 22, 26, 27, 28]
    assert branches[3, :8].tolist() == [0, 1, 2, 3, 4, 8, 9, 10]


def test_accepted_tokens_and_rows() -> None:
    bonus = torch.zeros(2, dtype=torch.int32)
    fill_bonus_tokens_cpu(torch.tensor([5, 6, 7, 8, 9, 10]), torch.tensor([1, 3]), bonus, 3)
    assert bonus.tolist() == [5, 10]
    packed = torch.full((6,), -1)
    accept_index = torch.tensor([[0, 2, -1], [4, -1, -1]])
    fill_accept_out_cache_loc_cpu(accept_index, torch.arange(100, 108), packed)
    assert packed.tolist() == [100, 102, 104, -1, -1, -1]


def test_rotation_of_input_ids() -> None:
    ids = torch.tensor([1, 2, 3, 4, 5, 6])
    arguments = torch.tensor([0, 4]), torch.tensor([4, 2]), torch.tensor([[90], [91]])
    rotate_input_ids_cpu(ids, *arguments)
    assert ids.tolist() == [2, 3, 4, 90, 6, 91]
    ids = torch.tensor([1, 2, 3, 4, 5, 6])
    rotate_input_ids_cpu(ids, *arguments, torch.tensor([1, 4]))
    assert ids.tolist() == [2, 90, 4, 4, 91, 6]


def test_overlapping_rows_are_moved_in_every_buffer() -> None:
    first, second = torch.randn(8, 3), torch.randn(8, 2, 5)
    expected = first.clone(), second.clone()
    target, source = torch.tensor([1, 2, 3]), torch.tensor([2, 3, 6])
    for buffer in expected:
        buffer[target] = buffer[source].clone()
    copy_all_layer_kv_cache_cpu(
        torch.tensor([first.data_ptr(), second.data_ptr()]),
        torch.tensor([12, 40]),
        target,
        source,
    )
    assert torch.equal(first, expected[0])
    assert torch.equal(second, expected[1])


def murmur3(data: bytes) -> int:
    """MurmurHash3_x86_32 with seed 0, for whole words."""
    state = 0
    for start in range(0, len(data), 4):
        word = int.from_bytes(data[start : start + 4], "little") * 0xCC9E2D51 & 0xFFFFFFFF
        word = ((word << 15 | word >> 17) & 0xFFFFFFFF) * 0x1B873593 & 0xFFFFFFFF
        state ^= word
        state = ((state << 13 | state >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64 & 0xFFFFFFFF
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    state = (state ^ state >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return state ^ state >> 16


def test_hash_of_seed_position_and_column() -> None:
    assert murmur3(b"test") == 0xBA6BD213  # a published vector
    seeds, positions, columns = [0, 42, 2**64 - 5], [1, 900, 7], [0, 3, 151935]
    hashed = murmur_hash32_cpu(
        torch.tensor(seeds, dtype=torch.uint64),
        torch.tensor(positions, dtype=torch.uint64),
        torch.tensor(columns),
    )
    assert hashed.dtype == torch.uint32
    for row, column in itertools.product(range(3), range(3)):
        data = seeds[row].to_bytes(8, "little")
        data += positions[row].to_bytes(4, "little") + columns[column].to_bytes(4, "little")
        assert int(hashed[row, column]) == murmur3(data)


def test_other_names_import_and_refuse() -> None:
    from sgl_kernel import fast_topk

    with pytest.raises(NotImplementedError, match="fast_topk is not part of the CPU rig"):
        fast_topk()
    assert not hasattr(torch.ops.sgl_kernel, "convert_weight_packed")
