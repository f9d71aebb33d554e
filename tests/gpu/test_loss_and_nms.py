"""Loss in a CUDA graph and without synchronisation; NMS on the GPU."""

import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from yolov9.engine.captured import side_stream
from yolov9.loss import DetectionLoss, LossSettings, pack_targets
from yolov9.ops import nms

pytestmark = pytest.mark.gpu
CLASSES, PICTURES, SIDE = 20, 4, 320


def _loss():
    model = SimpleNamespace(nc=CLASSES, reg_max=16, stride=torch.tensor([8.0, 16.0, 32.0]))
    return DetectionLoss(model, LossSettings())


def _maps(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [
        [
            torch.randn(PICTURES, 64 + CLASSES, SIDE // s, SIDE // s, generator=generator)
            .to("cuda", dtype)
            .contiguous(memory_format=torch.channels_last)
            .requires_grad_()
            for s in (8, 16, 32)
        ]
        for _ in range(2)
    ]


def _table(seed, count=60):
    generator = torch.Generator().manual_seed(seed)
    picture = torch.randint(0, PICTURES, (count, 1), generator=generator)
    label = torch.randint(0, CLASSES, (count, 1), generator=generator)
    centre = torch.rand(count, 2, generator=generator)
    size = torch.rand(count, 2, generator=generator) * 0.4 + 0.02
    return pack_targets(torch.cat((picture, label, centre, size), 1), PICTURES, bucket=(64,)).to("cuda")


def _flat(maps):
    return [level for head in maps for level in head]


@contextmanager
def waiting_is_an_error():
    # PyTorch warns that it does not find every synchronisation.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_loss_and_gradient_never_wait_for_the_device():
    loss, maps, table = _loss(), _maps(), _table(1)
    with waiting_is_an_error():
        loss(maps, table)[0].backward()
    assert all(level.grad is not None for level in _flat(maps))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recorded_step_equals_the_plain_one_for_new_targets(dtype):
    with side_stream(torch.device("cuda", 0)):
        loss, maps, table = _loss(), _maps(dtype), _table(1)
        for _ in range(2):
            torch.autograd.grad(loss(maps, table)[0], _flat(maps))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            total, items = loss(maps, table)
            gradients = torch.autograd.grad(total, _flat(maps))
        for seed, count in ((2, 100), (3, 0), (4, 17)):
            table.copy_(_table(seed, count))
            graph.replay()
            plain_total, plain_items = loss(maps, table)
            plain = torch.autograd.grad(plain_total, _flat(maps))
            assert torch.equal(total, plain_total), (seed, count)
            torch.testing.assert_close((items, *gradients), (plain_items, *plain), rtol=0, atol=0)


def test_loss_on_the_gpu_equals_that_on_the_cpu():
    table = _table(5)
    on_gpu = _maps()
    on_cpu = [[level.detach().cpu().requires_grad_() for level in head] for head in on_gpu]
    total, items = _loss()(on_gpu, table)
    total.backward()
    expected, expected_items = _loss()(on_cpu, table.cpu())
    expected.backward()
    torch.testing.assert_close((total.cpu(), items.cpu()), (expected, expected_items), rtol=1e-5, atol=0)
    for level, same in zip(_flat(on_gpu), _flat(on_cpu), strict=True):
        torch.testing.assert_close(level.grad.cpu(), same.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("multi_label", [False, True])
def test_nms_gives_the_same_rows_on_both_devices(multi_label):
    generator = torch.Generator().manual_seed(6)
    prediction = torch.rand(8, 4 + CLASSES, 2000, generator=generator)
    prediction[:, :2] *= SIDE
    prediction[:, 2:4] *= SIDE / 5
    on_gpu = nms(prediction.to("cuda"), 0.3, 0.6, multi_label=multi_label)
    for rows, expected in zip(on_gpu, nms(prediction, 0.3, 0.6, multi_label=multi_label), strict=True):
        torch.testing.assert_close(rows.cpu(), expected, rtol=0, atol=0)
