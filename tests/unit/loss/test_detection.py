import pytest
import torch

from yolov9.loss import WholeBatch, assigner, pack_targets


def _gradients(maps):
    return [level.grad for head in maps for level in head]


def test_rows_and_table_give_the_same_loss_and_gradient(problem):
    results = []
    for targets in (problem.rows, pack_targets(problem.rows, problem.pictures)):
        maps = problem.maps()
        total, items = problem.loss()(maps, targets)
        total.backward()
        results.append((total.detach(), items, *_gradients(maps)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("size", [64, 200])
def test_padding_changes_nothing(problem, size):
    results = []
    for bucket in (1, size):
        maps = problem.maps()
        total, items = problem.loss()(maps, pack_targets(problem.rows, problem.pictures, bucket=(bucket,)))
        total.backward()
        results.append((total.detach(), items, *_gradients(maps)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-7)


def test_number_of_pairs_looked_at_together_changes_nothing(problem, monkeypatch):
    table = pack_targets(problem.rows, problem.pictures)
    at_once, _ = problem.loss()(problem.maps(), table)
    monkeypatch.setattr(assigner, "PAIRS_AT_ONCE", 1)
    one_by_one, _ = problem.loss()(problem.maps(), table)
    torch.testing.assert_close(one_by_one, at_once, rtol=1e-6, atol=0)


def test_without_targets_only_the_class_term_remains(problem):
    total, items = problem.loss()(problem.maps(), pack_targets(problem.rows[:0], problem.pictures))
    assert items[0] == items[2] == 0
    assert items[1] > 0
    assert total.item() == pytest.approx(items.sum().item() * problem.pictures)


def test_more_candidates_asked_for_than_there_are_anchors(problem):
    maps = tuple([level[:, :, :1, :1].detach().requires_grad_() for level in head] for head in problem.maps())
    rows = torch.tensor([[0.0, 1.0, 0.5, 0.5, 0.9, 0.9]])
    total, items = problem.loss(topk=10)(maps, pack_targets(rows, problem.pictures))
    total.backward()
    assert torch.isfinite(items).all()
    assert items[0] > 0
    assert all(torch.isfinite(gradient).all() for gradient in _gradients(maps))


def test_the_auxiliary_head_counts_with_its_share(problem):
    table = pack_targets(problem.rows, problem.pictures)
    aux, main = problem.maps()
    dual = problem.loss(aux=0.25)((aux, main), table)[1]
    torch.testing.assert_close(dual, problem.loss()(main, table)[1] + 0.25 * problem.loss()(aux, table)[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_maps_are_computed_with_in_float32_under_autocast(problem, dtype):
    table = pack_targets(problem.rows, problem.pictures)
    maps = problem.maps(dtype)
    with torch.autocast("cpu", dtype=dtype):
        total, items = problem.loss()(maps, table)
    total.backward()
    widened = tuple([level.detach().float() for level in head] for head in maps)
    expected, expected_items = problem.loss()(widened, table)
    assert total.dtype == torch.float32
    torch.testing.assert_close((total.detach(), items), (expected, expected_items), rtol=0, atol=0)
    assert all(gradient.dtype == dtype and torch.isfinite(gradient).all() for gradient in _gradients(maps))


def test_channels_last_maps_give_the_same_loss(problem):
    table = pack_targets(problem.rows, problem.pictures)
    maps = problem.maps()
    last = tuple([level.to(memory_format=torch.channels_last) for level in head] for head in maps)
    torch.testing.assert_close(problem.loss()(last, table), problem.loss()(maps, table), rtol=0, atol=0)


def test_a_map_that_is_not_finite_shows_in_the_total(problem):
    maps = problem.maps()
    with torch.no_grad():
        maps[1][0][0, 70 - 2, 0, 0] = float("inf")
    total, _ = problem.loss()(maps, pack_targets(problem.rows, problem.pictures))
    assert not torch.isfinite(total)


def test_focal_exponent_below_one_has_a_finite_gradient(problem):
    maps = problem.maps()
    with torch.no_grad():
        maps[1][0][:, 64:] = -200.0  # scores that underflow to 0
    total, _ = problem.loss(fl_gamma=0.5)(maps, pack_targets(problem.rows, problem.pictures))
    total.backward()
    assert all(torch.isfinite(gradient).all() for gradient in _gradients(maps))


def test_parts_of_a_batch_add_up_to_the_loss_of_the_batch(problem):
    table, loss = pack_targets(problem.rows, problem.pictures), problem.loss()
    together = problem.maps()
    total, items = loss(together, table)
    total.backward()
    parts = [tuple([level[part] for level in head] for head in problem.maps()) for part in (slice(2), slice(2, 3))]
    tables = table[:2], table[2:]
    sums = torch.stack([loss.score_sums(maps, part) for maps, part in zip(parts, tables, strict=True)]).sum(0)
    whole = WholeBatch(sums, torch.tensor(float(problem.pictures)))
    apart = problem.maps()
    results = [
        loss(tuple([level[part] for level in head] for head in apart), table[part], whole)
        for part in (slice(2), slice(2, 3))
    ]
    sum(part for part, _ in results).backward()
    torch.testing.assert_close(sum(part for part, _ in results), total, rtol=1e-6, atol=0)
    torch.testing.assert_close(sum(part for _, part in results), items, rtol=1e-6, atol=0)
    torch.testing.assert_close(_gradients(apart), _gradients(together), rtol=1e-5, atol=1e-7)
