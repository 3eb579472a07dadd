"""The same ResNets and the same meta step in PyTorch, on the same weights.

Modules bear the names that flax gives ours, so that weights find their place.
"""

# PyTorch is an extra.
# pyright: reportMissingImports=false, reportCallIssue=false
import numpy as np
import torch
from torch import nn
from torch.func import functional_call
import torch.nn.functional as F


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


def load(net: ResNet, variables: dict[str, np.ndarray]) -> None:
  """Fills `net` from our variables, a dict from path to array."""
  names = {
    "kernel": "weight",
    "scale": "weight",
    "mean": "running_mean",
    "var": "running_var",
  }
  state = dict(net.state_dict())
  for path, array in variables.items():
    *modules, name = path.split("/")
    modules = [m for m in modules if m[0].isupper()]
    array = np.array(array)
    if name == "kernel":
      array = array.transpose(3, 2, 0, 1)
    state[".".join([*modules, names.get(name, name)])] = torch.tensor(array)
  net.load_state_dict(state)


def meta_step(path, inner_steps, channels_last, double=False):
  """Validation loss after the base level, and its gradient in the pixels."""
  problem = np.load(path, allow_pickle=False)
  dtype = torch.float64 if double else torch.float32
  kinds = ("params/", "batch_stats/")
  variables = {k: v for k, v in problem.items() if k.startswith(kinds)}
  widths, blocks = problem["widths"].tolist(), problem["blocks"].tolist()
  classes = len(variables["params/head/weight"])
  net = ResNet(
    blocks, widths, classes, problem["mean"].tolist(), problem["std"].tolist()
  )
  load(net, variables)
  net.eval()
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
