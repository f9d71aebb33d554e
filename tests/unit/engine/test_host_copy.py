"""Copies for checkpoints."""

import math

import pytest
import torch

from yolov9.engine.host_copy import all_finite, copy_to_host, largest_values


def test_copies_are_independent_contiguous_and_in_order() -> None:
    tensors = {"b": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last), "a": torch.tensor(3)}
    copies = copy_to_host(tensors)
    before = {name: value.clone() for name, value in tensors.items()}
    for value in tensors.values():
        value.add_(1)
    assert list(copies) == ["b", "a"]
    assert all(torch.equal(copies[name], before[name]) for name in tensors)
    assert all(value.is_contiguous() for value in copies.values())


def test_p12_a_full_card_still_gives_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensors: list[torch.Tensor]) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    tensors = {"a": torch.rand(2, 3), "b": torch.rand(5)}
    monkeypatch.setattr(torch, "cat", full)
    copies = copy_to_host(tensors)
    assert all(torch.equal(copies[name], tensors[name]) for name in tensors)
    assert copies["a"].data_ptr() != tensors["a"].data_ptr()


def test_copies_of_one_type_are_parts_of_one_block() -> None:
    copies = copy_to_host({"a": torch.rand(2, 3), "b": torch.rand(5), "n": torch.tensor(3)})
    assert copies["a"].untyped_storage().data_ptr() == copies["b"].untyped_storage().data_ptr()
    assert copies["n"].dtype == torch.int64


def test_largest_values_are_those_of_each_tensor_also_where_it_is_empty_or_has_no_end() -> None:
    found = largest_values(
        [torch.tensor([-3.0, 2.0]), torch.zeros(0), torch.tensor([1.0, math.inf]), torch.tensor(3e38)]
    )
    assert found == [3.0, 0.0, math.inf, pytest.approx(3e38)]
    assert math.isnan(largest_values([torch.tensor([[0.0, math.nan], [1.0, 2.0]])])[0])
    assert largest_values([]) == []


def test_tensors_that_fill_one_block_travel_with_it() -> None:
    block = torch.arange(24.0)
    tensors = {"a": block[:16].view(4, 4).T, "b": block[16:23], "alone": torch.rand(3)}
    copies = copy_to_host(tensors)
    before = {name: value.clone() for name, value in tensors.items()}
    block.zero_()
    assert list(copies) == ["a", "b", "alone"]
    assert all(torch.equal(copies[name], before[name]) for name in tensors)
    assert copies["a"].untyped_storage().data_ptr() == copies["b"].untyped_storage().data_ptr()
    assert copies["alone"].untyped_storage().nbytes() == tensors["alone"].nbytes


def test_a_small_part_of_a_block_travels_alone() -> None:
    block = torch.rand(10_000)
    copies = copy_to_host({"a": block[:3], "b": block[5:8]})
    assert copies["a"].untyped_storage().nbytes() < 100
    assert torch.equal(copies["b"], block[5:8])


def test_what_is_not_finite_in_a_shared_block_is_noticed() -> None:
    block = torch.ones(10)
    tensors = {"a": block[:5], "b": block[5:]}
    assert all_finite(tensors)
    block[7] = math.nan
    assert not all_finite(tensors)
