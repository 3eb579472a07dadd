# %% [markdown]
# # Inspect a run
#
# [![Open in Colab](../docs/pictures/colab.svg)](https://colab.research.google.com/github/OWNER/mnemonics_jax/blob/main/notebooks/inspect_run.ipynb)
#
# A finished run from inside: its accuracies, its exemplars over the phases, both
# read-outs, the gradient they were learned with; then predictions for pictures of
# your own, and classes that the run never saw.
#
# Without a run of yours it makes one, of eight digits, in about two minutes on two
# CPU cores. For your own, set `RUN` to its work directory.

# %%
import importlib.metadata
import os
from pathlib import Path
import subprocess
import sys

SMOKE = "MNEMONICS_SMOKE" in os.environ  # An epoch each, to see that it works.
RUN = Path("inspected_run")

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
# ## A run
#
# Eight of the ten digits, four of them first; the last two are kept for later. If
# `RUN` is there already, it is not made again.

# %%
import dataclasses

import jax
import matplotlib.pyplot as plt
import numpy as np

from mnemonics_jax import (
  PerClass,
  augment,
  bilevel,
  data,
  methods,
  networks,
  phase,
  report,
  runs,
)

digits = data.load("digits")


def only(dataset, names):
  """The part of a data set that shows these classes, which come first in it."""
  train = dataset.train_labels < len(names)
  test = dataset.test_labels < len(names)
  return dataclasses.replace(
    dataset,
    train_images=dataset.train_images[train],
    train_labels=dataset.train_labels[train],
    test_images=dataset.test_images[test],
    test_labels=dataset.test_labels[test],
    class_names=names,
  )


eight = only(digits, digits.class_names[:8])
stream = data.stream(
  eight, phases=1 if SMOKE else 2, images_per_class=20 if SMOKE else None
)
network = networks.resnet8(
  width=4 if SMOKE else 16,
  image_shape=stream.image_shape,
  mean=stream.mean,
  std=stream.std,
)
epochs = 1 if SMOKE else 20
schedule = phase.Schedule(epochs, milestones=(10, 15), batch_size=64)
config = phase.Config(
  network,
  methods.LUCIR(),
  stream.shape,
  memory=PerClass(5),
  exemplars="mnemonics",
  bilevel=bilevel.BilevelConfig(epochs=1 if SMOKE else 10),
  base=schedule,
  train=schedule,
  augment=augment.CropFlip(1, mirror=False),
)
if not (RUN / "results.json").exists():
  runs.run(config, stream, RUN)
run = report.load_run(RUN)
print(report.console_table(run.results))

# %% [markdown]
# ## Two read-outs, phase by phase
#
# `head` is the classifier, `nme` the nearest mean of exemplars.

# %%
phases = run.results["runs"][0]["phases"]
seen = [entry["classes_seen"] for entry in phases]
for readout in ("head", "nme"):
  plt.plot(
    seen,
    [100 * entry["accuracy"][readout] for entry in phases],
    "o-",
    label=readout,
  )
plt.xticks(seen)
plt.xlabel("classes seen")
plt.ylabel("accuracy, %")
plt.legend()
plt.show()

# %% [markdown]
# Where do they err? Rows are true classes, columns predictions, after the last
# phase.

# %%
seed, last = run.results["seeds"][0], len(phases) - 1
names = run.results["class_names"]
arrays = run.arrays(seed, last)
figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for axis, readout in zip(axes, ("head", "nme"), strict=True):
  counts = arrays[f"confusion/final/{readout}"]
  axis.imshow(counts, cmap="Blues")
  axis.set(title=f"{readout}: {counts.trace() / counts.sum():.1%}")
  if len(counts) <= 20:
    axis.set(xticks=range(len(counts)), yticks=range(len(counts)))
    axis.set(xticklabels=names[: len(counts)], yticklabels=names[: len(counts)])
plt.show()

# %% [markdown]
# ## Exemplars over the phases
#
# One image of each class after every phase: empty before its class arrived,
# unchanged afterwards unless old exemplars are adjusted (`adjust=True`).

# %%
shown = min(seen[-1], 10)
figure, axes = plt.subplots(
  last + 1,
  shown,
  figsize=(shown, last + 1.4),
  layout="constrained",
  squeeze=False,
)
for i, row in enumerate(axes):
  memory = run.arrays(seed, i, "memory")["memory/images"]
  for label, axis in enumerate(row):
    axis.set(xticks=[], yticks=[])
    axis.set_frame_on(label < len(memory))
    if label < len(memory):
      axis.imshow(memory[label, 0])
    if i == 0:
      axis.set_title(names[label])
  row[0].set_ylabel(f"phase {i}")
plt.show()

# %% [markdown]
# What did learning change? Some exemplars of phase 0 before and after it, and the
# difference, enlarged 50 times: the trust region is two grey levels.

# %%
changed = run.arrays(seed, 0, "changed/exemplars")
before, after = (
  changed[f"changed/exemplars/{moment}"] for moment in ("before", "after")
)
difference = after.astype(int) - before
print("largest change:", np.abs(difference).max(), "grey levels")
count = min(len(before), 8)
figure, axes = plt.subplots(
  3, count, figsize=(count, 3.3), layout="constrained"
)
for column, old, new, move in zip(
  axes.T, before, after, difference, strict=False
):
  for axis, image in zip(column, (old, new, 127 + 50 * move), strict=True):
    axis.imshow(image.clip(0, 255).astype(np.uint8))
    axis.set(xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## Is the gradient right for this network?
#
# The hypergradient through three steps of the whole network, against float64: one
# exemplar of each class, validated by another one. The network is a fresh one; the
# question is whether the derivative is right, not what it says. For a run of your
# own put its network here.

# %%
images = run.arrays(seed, 0, "memory")["memory/images"]
labels = np.arange(len(images), dtype=np.int32)
exemplars = bilevel.Exemplars(bilevel.from_uint8(images[:, 0]), labels)
model = config.model
check = bilevel.check_hypergradient(
  jax.random.key(1),
  exemplars,
  model.init(jax.random.key(0)),
  (images[:, 1], labels),
  apply_fn=lambda variables, images: model.apply(variables, images)[0].logits,
  config=bilevel.BilevelConfig(inner_steps=3, scope="all"),
)
print(check.explanation)
assert check.right

# %% [markdown]
# ## Predict pictures of your own
#
# `Learner.load` opens the run: what it learned needs no original data. Put pictures
# into `my_pictures`; without any, two test images stand in for them.

# %%
from PIL import Image

from mnemonics_jax import Learner

learner, known = Learner.load(RUN)
folder = Path("my_pictures")
if not folder.exists():
  folder.mkdir()
  for i in range(2):
    large = Image.fromarray(digits.test_images[i]).resize((80, 80))
    large.save(folder / f"{digits.class_names[digits.test_labels[i]]}.png")

height, width = images.shape[2:4]
paths = sorted(folder.iterdir())
pictures = np.stack(
  [
    np.asarray(Image.open(path).convert("RGB").resize((width, height)))
    for path in paths
  ]
)
for readout in ("head", "nme"):
  names = learner.predict(known, pictures, readout=readout)
  sure = learner.predict_proba(known, pictures, readout=readout).max(-1)
  for path, name, share in zip(paths, names, sure, strict=True):
    print(f"{readout:<6}{path.name:<12}→ {name} ({share:.0%})")

# %% [markdown]
# ## Add classes
#
# The two digits that were kept for later, as one more phase. `known` stays what it
# was; what is known afterwards is another value.

# %%
late = np.isin(digits.train_labels, (8, 9))
late &= np.arange(len(late)) < (200 if SMOKE else len(late))
all_names = np.array(digits.class_names)
more = learner.learn(
  known, digits.train_images[late], all_names[digits.train_labels[late]]
)
truth = all_names[digits.test_labels]
print(len(known.names), "→", len(more.names), "classes")
for readout in ("head", "nme"):
  scores = learner.evaluate(more, digits.test_images, truth, readout=readout)
  print(f"{readout:<6}{scores.accuracy:.1%} of all ten digits")

# %%
learner.save(more, "ten_digits")
_, restored = Learner.load("ten_digits")
print(restored.names)
