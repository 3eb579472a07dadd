"""LUCIR (Hou et al. 2019): a unified classifier rebalanced by cosines."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from mnemonics_jax import losses
from mnemonics_jax.heads import CosineHead, Head, imprint
from mnemonics_jax.methods.base import Method


@dataclasses.dataclass(frozen=True)
class LUCIR(Method):
  """Cosine head, imprinted new rows, frozen old rows, three losses.

  Attributes:
    less_forget_base: λ_base; 5 on CIFAR, 10 on ImageNet.
    top: K, the hardest new classes each old sample is held away from.
    margin: by how much.
    ranking_weight: weight of the margin ranking loss.
  """

  name: ClassVar[str] = "lucir"
  head: Head = CosineHead()
  less_forget_base: float = 5.0
  top: int = 2
  margin: float = 0.5
  ranking_weight: float = 1.0

  def begin_phase(self, variables, means, classes):
    params = variables["params"]
    head = imprint(
      params["head"], jnp.asarray(means()), classes.old, classes.new
    )
    return variables | {"params": params | {"head": head}}

  def trainable_rows(self, classes):
    return classes.new

  def less_forget_weight(self, classes):
    """λ_i = λ_base · sqrt(n_old / n_new): grows with what is to be kept."""
    ratio = classes.old.sum() / jnp.maximum(classes.new.sum(), 1)
    return self.less_forget_base * jnp.sqrt(ratio)

  def loss(self, student, teacher, labels, classes):
    ce = losses.cross_entropy(student.logits, labels, classes.seen)
    if teacher is None:
      return ce, {"cross_entropy": ce}
    ranking = losses.margin_ranking(
      student.cosines,
      labels,
      classes.old,
      classes.new,
      top=min(self.top, student.cosines.shape[-1]),
      margin=self.margin,
    )
    loss = ce + self.ranking_weight * ranking
    parts = {"cross_entropy": ce, "margin_ranking": ranking}
    if self.distill:
      forget = losses.less_forget(student.features, teacher.features)
      loss += self.less_forget_weight(classes) * forget
      parts["less_forget"] = forget
    return loss, parts
