"""The same training steps in PyTorch, from the same weights."""

# PyTorch is an extra.
# pyright: reportMissingImports=false, reportCallIssue=false
import copy

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

from benchmarks.torch_resnet import ResNet, load

_BATCH, _RATE, _PAD = 128, 0.01, 4
_REST = "batch norm, ReLU, update, the rest"


class TransferConv(nn.Module):
  """A frozen convolution under a scale and a shift."""

  def __init__(self, conv: nn.Conv2d, kind: str):
    super().__init__()
    self.conv, self.kind = conv.requires_grad_(False), kind
    inputs = conv.in_channels if kind == "in_out" else 1
    self.scale = nn.Parameter(torch.ones(conv.out_channels, inputs, 1, 1))
    self.shift = nn.Parameter(torch.zeros(conv.out_channels))

  def forward(self, x):
    conv = self.conv
    if self.kind == "out":
      y = F.conv2d(x, conv.weight, None, conv.stride, conv.padding)
      return y * self.scale.view(1, -1, 1, 1) + self.shift.view(1, -1, 1, 1)
    kernel = conv.weight * self.scale
    return F.conv2d(x, kernel, self.shift, conv.stride, conv.padding)


def _under_transfer(module, kind):
  """Replaces every convolution in place."""
  for name, child in module.named_children():
    if isinstance(child, nn.Conv2d):
      setattr(module, name, TransferConv(child, kind))
    else:
      _under_transfer(child, kind)


def _augment(images):
  """Crops at random places and flips half of the images, all at once."""
  n, height, width, _ = images.shape
  padded = F.pad(images, (0, 0, _PAD, _PAD, _PAD, _PAD))
  at = torch.randint(0, 2 * _PAD + 1, (2, n, 1))
  rows = at[0] + torch.arange(height)
  columns = at[1] + torch.arange(width)
  flipped = torch.rand(n, 1) < 0.5
  columns = torch.where(flipped, columns.flip(1), columns)
  index = torch.arange(n).view(n, 1, 1)
  return padded[index, rows[:, :, None], columns[:, None, :]]


def train_steps(path, kind, steps, channels_last, compiled=False):
  """`steps` SGD steps; returns the sum of their losses."""
  arrays = np.load(path, allow_pickle=False)
  kinds = ("params/", "batch_stats/")
  variables = {k: v for k, v in arrays.items() if k.startswith(kinds)}
  classes = len(variables["params/head/weight"])
  net = ResNet(
    arrays["blocks"].tolist(),
    arrays["widths"].tolist(),
    classes,
    arrays["mean"].tolist(),
    arrays["std"].tolist(),
  )
  load(net, variables)
  layout = torch.channels_last if channels_last else torch.contiguous_format
  net = net.to(dtype=torch.float32, memory_format=layout).train()
  teacher = copy.deepcopy(net).eval() if kind == "phase" else None
  if kind in ("in_out", "out"):
    _under_transfer(net, kind)
  pool = torch.tensor(arrays["images"])
  pool_labels = torch.tensor(arrays["labels"]).long()
  trained = [p for p in net.parameters() if p.requires_grad]
  optimizer = torch.optim.SGD(trained, _RATE, momentum=0.9, weight_decay=5e-4)

  apply = torch.compile(net) if compiled else net
  teach = torch.compile(teacher) if compiled and teacher else teacher

  def loss_of(images, labels):
    logits = apply(images)
    loss = F.cross_entropy(logits, labels)
    if teach is None:
      return loss
    old = classes // 2
    with torch.no_grad():
      targets = (teach(images)[:, :old] / 2).softmax(1)
    return 0.5 * loss + 0.5 * F.cross_entropy(logits[:, :old] / 2, targets)

  def step():
    total = 0.0
    for i in range(steps):
      at = torch.arange(i * _BATCH, (i + 1) * _BATCH) % len(pool)
      images, labels = pool[at], pool_labels[at]
      if kind == "phase":
        images = _augment(images)
      images = images.permute(0, 3, 1, 2).float().div_(255)
      images = images.contiguous(memory_format=layout)
      optimizer.zero_grad()
      loss = loss_of(images, labels)
      loss.backward()
      optimizer.step()
      total += loss.item()
    return total

  return step, {"torch": torch.__version__}


def profile(path, kind, steps):
  """Seconds of an SGD step in each kind of operation, channels last."""
  step, facts = train_steps(path, kind, steps, channels_last=True)
  step()
  names = {
    "aten::mkldnn_convolution": "convolutions, forward",
    "aten::convolution_backward": "convolutions, backward",
  }

  def profiled():
    with torch.profiler.profile() as trace:
      step()
    seconds = dict.fromkeys([*names.values(), _REST], 0.0)
    for event in trace.key_averages():
      name = names.get(event.key, _REST)
      seconds[name] += event.self_cpu_time_total / steps / 1e6
    return seconds

  return profiled, facts


def gemm(size, repeats):
  a = torch.ones(size, size)

  def step():
    for _ in range(repeats):
      torch.mm(a, a)

  step()
  return step, {}
