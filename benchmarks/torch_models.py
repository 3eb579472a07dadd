"""The same meta step and training steps in PyTorch, from the same weights.

Each function that returns a step is a contestant's factory. Modules bear the names that
flax gives ours, so that weights find their place.
"""

# PyTorch is an extra.
# pyright: reportMissingImports=false, reportCallIssue=false
import copy

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
import torch.nn.functional as F

_BATCH, _RATE, _PAD = 128, 0.01, 4
_REST = "batch norm, ReLU, update, the rest"


class Block(nn.Module):
  """Two 3×3 convolutions around a shortcut."""

  def __init__(self, inputs, features, stride, last):
    super().__init__()
    self.last = last
    self.Conv_0 = nn.Conv2d(inputs, features, 3, stride, 1, bias=False)
    self.BatchNorm_0 = nn.BatchNorm2d(features)
    self.Conv_1 = nn.Conv2d(features, features, 3, 1, 1, bias=False)
    self.BatchNorm_1 = nn.BatchNorm2d(features)
    self.project = stride != 1 or inputs != features
    if self.project:
      self.Conv_2 = nn.Conv2d(inputs, features, 1, stride, bias=False)
      self.BatchNorm_2 = nn.BatchNorm2d(features)

  def forward(self, x):
    y = F.relu(self.BatchNorm_0(self.Conv_0(x)))
    y = self.BatchNorm_1(self.Conv_1(y))
    if self.project:
      x = self.BatchNorm_2(self.Conv_2(x))
    return x + y if self.last else F.relu(x + y)


class ResNet(nn.Module):
  """Basic-block ResNet for small images under a cosine classifier."""

  def __init__(self, blocks, widths, classes, mean, std):
    super().__init__()
    self.register_buffer("mean", _per_channel(mean))
    self.register_buffer("std", _per_channel(std))
    self.Conv_0 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
    self.BatchNorm_0 = nn.BatchNorm2d(widths[0])
    self.names, inputs = [], widths[0]
    for i, (count, width) in enumerate(zip(blocks, widths, strict=True)):
      for j in range(count):
        stride = 2 if i > 0 and j == 0 else 1
        last = i == len(blocks) - 1 and j == count - 1
        self.names.append(f"Block_{len(self.names)}")
        block = Block(inputs, width, stride, last)
        self.add_module(self.names[-1], block)
        inputs = width
    self.weight = nn.Parameter(torch.empty(classes, widths[-1]))
    self.sigma = nn.Parameter(torch.empty(()))

  def forward(self, images):
    x = (images - self.mean) / self.std
    x = F.relu(self.BatchNorm_0(self.Conv_0(x)))
    for name in self.names:
      x = self.get_submodule(name)(x)
    x = x.mean((2, 3))
    return self.sigma * _unit(x) @ _unit(self.weight).T


def _per_channel(values):
  # Precise until the network is cast, or float64 would not be.
  return torch.tensor(values, dtype=torch.float64).reshape(1, -1, 1, 1)


def _unit(x):
  return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-12)


def _network(arrays) -> ResNet:
  """The network of a file that `jax_meta.save` has written, with its weights."""
  lists = (arrays[n].tolist() for n in ("blocks", "widths"))
  shifts = (arrays[n].tolist() for n in ("mean", "std"))
  net = ResNet(*lists, len(arrays["params/head/weight"]), *shifts)
  names = {
    "kernel": "weight",
    "scale": "weight",
    "mean": "running_mean",
    "var": "running_var",
  }
  state = dict(net.state_dict())
  for path, array in arrays.items():
    if not path.startswith(("params/", "batch_stats/")):
      continue
    *modules, name = path.split("/")
    modules = [m for m in modules if m[0].isupper()]
    if name == "kernel":
      array = array.transpose(3, 2, 0, 1)
    state[".".join([*modules, names.get(name, name)])] = torch.tensor(array)
  net.load_state_dict(state)
  return net


def meta_step(path, inner_steps, channels_last, double=False):
  """Validation loss after the base level, and its gradient in the pixels."""
  problem = np.load(path, allow_pickle=False)
  dtype = torch.float64 if double else torch.float32
  net = _network(problem).eval()
  layout = torch.channels_last if channels_last else torch.contiguous_format
  net = net.to(dtype=dtype, memory_format=layout)
  lr = float(problem["inner_lr"])

  def images(name):
    x = torch.tensor(problem[name], dtype=dtype).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=layout)

  pixels, labels = images("exemplars"), torch.tensor(problem["labels"]).long()
  valid = images("valid")
  valid_labels = torch.tensor(problem["valid_labels"]).long()
  start = {k: p.detach() for k, p in net.named_parameters()}

  def step():
    exemplars = pixels.detach().requires_grad_()
    params = {k: p.detach().requires_grad_() for k, p in start.items()}
    for _ in range(inner_steps):
      logits = functional_call(net, params, (exemplars,))
      grads = torch.autograd.grad(
        F.cross_entropy(logits, labels),
        tuple(params.values()),
        create_graph=True,
      )
      params = {
        k: p - lr * g for (k, p), g in zip(params.items(), grads, strict=True)
      }
    logits = functional_call(net, params, (valid,))
    loss = F.cross_entropy(logits, valid_labels)
    (grads,) = torch.autograd.grad(loss, exemplars)
    return loss.item(), grads.permute(0, 2, 3, 1).contiguous().numpy()

  return step, {"torch": torch.__version__, "threads": torch.get_num_threads()}


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
  net = _network(arrays)
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
    old = len(net.weight) // 2
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
