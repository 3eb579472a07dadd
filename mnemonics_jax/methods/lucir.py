"""LUCIR (Hou et al. 2019): a unified classifier rebalanced by cosines."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from mnemonics_jax import losses
from mnemonics_jax.methods.base import Classes, Method
from mnemonics_jax.nn.heads import CosineHead, Head, imprint


@dataclasses.dataclass(frozen=True)
class LUCIR(Method):
  """Cosine head, imprinted new rows, frozen old rows, three losses.

  The authors' code, which made the published numbers, averages the margin loss
  over the K classes and begins with σ = 1. Short schedules need our σ = 10.

  Attributes:
    less_forget_base: λ_base; 5 on CIFAR, 10 on ImageNet.
    top: K, the hardest new classes that each old sample is held away from.
    margin: by how much.
    ranking_weight: weight of the margin ranking loss.
    reduction: of that loss over the K classes, `sum` (Eq. 8) or `mean`.
  """

  name: ClassVar[str] = "lucir"
  last_relu: ClassVar[bool] = False
  head: Head = CosineHead()
  less_forget_base: float = 5.0
  top: int = 2
  margin: float = 0.5
  ranking_weight: float = 1.0
  reduction: str = "sum"

  def reference(self):
    """With the mean over K classes and σ = 1."""
    return dataclasses.replace(
      self, reduction="mean", head=CosineHead(sigma=1.0)
    )

  def begin_phase(self, variables, means, classes):
    """Imprints new rows, as long as the old ones are on average."""
    params = variables["params"]
    # Equal lengths: old and new classes start on equal terms.
    norms = jnp.linalg.norm(params["head"]["weight"], axis=-1)
    norm = jnp.sum(norms * classes.old) / jnp.maximum(jnp.sum(classes.old), 1)
    head = imprint(params["head"], jnp.asarray(means()), classes.new, norm)
    return variables | {"params": params | {"head": head}}

  def trainable_rows(self, classes):
    """New rows only: old classes keep theirs."""
    return classes.new

  def less_forget_weight(self, classes: Classes) -> Float[Array, ""]:
    """λ_i = λ_base · sqrt(n_old / n_new): grows with the number of old classes."""
    ratio = classes.old.sum() / jnp.maximum(classes.new.sum(), 1)
    return self.less_forget_base * jnp.sqrt(ratio)

  def loss(self, student, teacher, labels, classes):
    """L_c + λ_i · less-forget + margin ranking; in phase 0 only L_c."""
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
      reduction=self.reduction,
    )
    loss = ce + self.ranking_weight * ranking
    parts = {"cross_entropy": ce, "margin_ranking": ranking}
    if self.distill:
      forget = losses.less_forget(student.features, teacher.features)
      loss += self.less_forget_weight(classes) * forget
      parts["less_forget"] = forget
    return loss, parts
