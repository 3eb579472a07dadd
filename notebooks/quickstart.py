# %% [markdown]
# # Quickstart: learn exemplars for your own model
#
# [![Open in Colab](../docs/pictures/colab.svg)](https://colab.research.google.com/github/OWNER/mnemonics_jax/blob/main/notebooks/quickstart.ipynb)
#
# Two images of each digit are all that a model may keep. This notebook makes them
# parameters: a small flax model is trained on them, its loss on real images is
# differentiated through that training, and the pixels move. You see them change,
# and what models know that are trained on nothing else.
#
# About three minutes on two CPU cores; no data are downloaded.

# %%
import importlib.metadata
import os
import subprocess
import sys

SMOKE = "MNEMONICS_SMOKE" in os.environ  # A few steps, to see that it works.

if "google.colab" in sys.modules:  # Before anything imports jax.
  home = "/content/mnemonics_jax"
  source = "https://github.com/OWNER/mnemonics_jax"
  if not os.path.exists(home):
    subprocess.run(["git", "clone", "-q", source, home], check=True)
  pip = [sys.executable, "-m", "pip", "install", "-q", "-e", home]
  subprocess.run(pip, check=True)
  sys.path.insert(0, home)

installed = importlib.metadata.version("jax")
if not (0, 10) <= tuple(map(int, installed.split(".")[:2])) < (0, 12):
  raise RuntimeError(
    f"jax {installed} is installed, 0.10 or 0.11 is needed: run"
    " `pip install 'jax>=0.10,<0.12'` and begin again."
  )
if "jax" in sys.modules and sys.modules["jax"].__version__ != installed:
  raise RuntimeError(
    "An older jax was imported before the installation: restart the session"
    " (Runtime → Restart session) and run this cell again."
  )
print("Python", sys.version.split()[0], "· jax", installed)

# %% [markdown]
# ## A model of your own
#
# Any flax module that gives logits will do. The library sees only a function
# `(variables, images) -> logits`.

# %%
from flax import linen as nn
import jax
import matplotlib.pyplot as plt
import numpy as np

from mnemonics_jax import bilevel, data


class SmallNet(nn.Module):
  """Two convolutions and a classifier, for images of 8×8 pixels."""

  @nn.compact
  def __call__(self, images):
    x = nn.gelu(nn.Conv(16, (3, 3))(images - 0.5))
    x = nn.gelu(nn.Conv(32, (3, 3), strides=2)(x))
    return nn.Dense(10)(x.reshape(len(x), -1))


digits = data.load("digits")
train = (digits.train_images, digits.train_labels)
test_images = bilevel.from_uint8(digits.test_images)
model = SmallNet()
variables = model.init(jax.random.key(0), test_images[:1])
print(f"{len(train[0])} training images, {len(test_images)} test images")

# %% [markdown]
# ## The start: two images of each digit
#
# `unroll` is the training that a model gets on the exemplars: here 20 steps of
# plain SGD. What does a model know that has seen only these?

# %%
rows = [np.flatnonzero(train[1] == digit)[:2] for digit in range(10)]
rows = np.concatenate(rows)
before = bilevel.Exemplars(bilevel.from_uint8(train[0][rows]), train[1][rows])
config = bilevel.BilevelConfig(
  inner_steps=3 if SMOKE else 20,
  inner_lr=0.2,
  max_change=None,
  outer_lr=0.02,
  epochs=2 if SMOKE else 30,
  steps_per_epoch=2 if SMOKE else 10,
)


@jax.jit
def predict(exemplars, variables):
  """What a model says of the test images that was trained on exemplars."""
  trained = bilevel.unroll(
    exemplars, variables, apply_fn=model.apply, config=config
  )
  return model.apply(trained, test_images).argmax(-1)


def accuracy(exemplars, variables=variables):
  return float((predict(exemplars, variables) == digits.test_labels).mean())


print(f"trained on 20 real images: {accuracy(before):.1%} of the test images")

# %% [markdown]
# ## Is the gradient right?
#
# The derivative through all inner steps, compared with forward-mode
# differentiation in float64 along a random direction.

# %%
validation = (train[0][:128], train[1][:128])
check = bilevel.check_hypergradient(
  jax.random.key(1),
  before,
  variables,
  validation,
  apply_fn=model.apply,
  config=config,
)
print(check.explanation)
assert check.right

# %% [markdown]
# ## Learn the pixels
#
# Each meta step trains a temporary model on the exemplars, measures it on real
# training images, and moves the pixels down the gradient.

# %%
result = bilevel.optimize_exemplars(
  jax.random.key(2),
  before,
  variables,
  train,
  apply_fn=model.apply,
  config=config,
)
after = result.exemplars

figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
axes[0].plot(result.history.loss)
axes[0].set(xlabel="epoch", ylabel="loss on real images", yscale="log")
axes[1].plot(result.history.displacement, color="tab:orange")
axes[1].set(xlabel="epoch", ylabel="mean move of a pixel, grey levels")
plt.show()

# %% [markdown]
# ## See them change
#
# Above the images as they were, in the middle as they are, below the difference:
# red is brighter, blue is darker.

# %%
figure, axes = plt.subplots(3, 10, figsize=(10, 3.2), layout="constrained")
old, new = np.asarray(before.images), np.asarray(after.images)
for digit, column in enumerate(axes.T):
  shown = 2 * digit
  change = (new - old)[shown].mean(-1)
  column[0].imshow(old[shown])
  column[1].imshow(new[shown])
  column[2].imshow(change, cmap="RdBu_r", vmin=-0.5, vmax=0.5)
  column[0].set_title(digit)
  for axis in column:
    axis.set(xticks=[], yticks=[])
for axis, name in zip(axes[:, 0], ("before", "after", "change"), strict=True):
  axis.set_ylabel(name)
plt.show()

# %% [markdown]
# ## What a model trained on them knows
#
# First the model whose start the exemplars were learned for, then models that
# start elsewhere, which they have never met.

# %%
seeds = range(5, 6 if SMOKE else 10)
others = [model.init(jax.random.key(seed), test_images[:1]) for seed in seeds]
print(f"{'start':<14}{'real images':>12}{'learned':>10}")
print(f"{'the same':<14}{accuracy(before):>12.1%}{accuracy(after):>10.1%}")
pairs = [(accuracy(before, other), accuracy(after, other)) for other in others]
for seed, (real, learned) in zip(seeds, pairs, strict=True):
  print(f"{f'seed {seed}':<14}{real:>12.1%}{learned:>10.1%}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for axis, name, exemplars in zip(
  axes, ("20 real images", "20 learned images"), (before, after), strict=True
):
  counts = np.zeros((10, 10), int)
  np.add.at(counts, (digits.test_labels, predict(exemplars, variables)), 1)
  axis.imshow(counts, cmap="Blues")
  axis.set(title=name, xlabel="predicted", ylabel="true")
  axis.set(xticks=range(10), yticks=range(10))
plt.show()

# %% [markdown]
# ## Keep them
#
# Memories hold bytes: rounded to uint8, the images do as well.

# %%
stored = bilevel.to_uint8(after.images)
restored = after._replace(images=bilevel.from_uint8(stored))
print(f"{stored.nbytes} bytes, {accuracy(restored):.1%} after rounding")

# %% [markdown]
# In a class-incremental run pixels are kept near their start (`max_change`, 2 grey
# levels by default): images that change much are good for the loss they were
# learned for, but bad training data later. Next:
# [inspect a run](inspect_run.ipynb), [CIFAR-100 on a TPU](cifar100_tpu.ipynb), or
# [how the bilevel step works](../docs/bilevel.md).
