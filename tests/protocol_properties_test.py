"""Whatever the number of classes, the split and the budget.

Small runs of the protocol without any training: real streams, memories and
metrics, and a brute force account of what they should do.
"""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from experiments import settings as settings_lib
from mnemonics_jax import exemplars, memory, protocol
from mnemonics_jax.data import Dataset
from mnemonics_jax.stream import ClassStream

PROFILE = hypothesis.settings(
  deadline=None, max_examples=100, database=None, derandomize=True
)


@st.composite
def streams(draw):
  """Classes of any size, in any order, cut into any phases."""
  classes = draw(st.integers(2, 12))
  base = draw(st.integers(0, classes - 1))
  phases = draw(st.integers(1, classes - base))
  sizes = draw(st.lists(st.integers(1, 9), min_size=classes, max_size=classes))
  labels = np.repeat(np.arange(classes, dtype=np.int32), sizes)
  # Every image has a number of its own.
  images = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1)
  test = np.arange(classes, dtype=np.int32)
  dataset = Dataset(
    "made up",
    train_images=images,
    train_labels=labels,
    test_images=test.astype(np.uint8).reshape(-1, 1, 1, 1),
    test_labels=test,
    class_names=tuple(map(str, range(classes))),
    mean=(0.5,),
    std=(0.5,),
  )
  order = protocol.class_order(classes, draw(st.integers(0, 2**32 - 1)))
  split = protocol.split_phases(classes, phases, base)
  joint = draw(st.booleans())
  return ClassStream(dataset, order, split, joint=joint), dataset, order, joint


policies = st.one_of(
  st.builds(protocol.PerClass, st.integers(1, 12)),
  st.builds(protocol.Total, st.integers(1, 60)),
)


@PROFILE
@hypothesis.given(streams())
def test_every_class_arrives_exactly_once(drawn):
  stream, dataset, order, joint = drawn
  assert [int(name) for name in stream.class_names] == order.tolist()
  assert sorted(order) == list(range(len(dataset.class_names)))
  arrived, images, seen = [], [], 0
  for data in stream:
    new = np.unique(data.labels[data.labels >= seen])
    seen += data.new_classes
    assert joint or (data.labels >= seen - data.new_classes).all()
    arrived += new.tolist()
    assert sorted(set(data.test_labels.tolist())) == list(range(seen))
    # Labels are places in the order, for training and test images.
    names = dataset.train_labels[data.images.ravel()]
    np.testing.assert_array_equal(order[data.labels], names)
    np.testing.assert_array_equal(
      order[data.test_labels], data.test_images.ravel()
    )
    # A joint phase has all images so far, another only its own.
    images = data.images.ravel().tolist() + ([] if joint else images)
  assert arrived == list(range(len(order)))
  assert sorted(images) == list(range(len(dataset.train_images)))


@PROFILE
@hypothesis.given(streams(), policies)
def test_memory_keeps_to_its_budget(drawn, policy):
  stream, dataset, order, joint = drawn
  sizes = stream.class_sizes
  shapes = settings_lib._shapes(stream, policy, joint)
  slots = shapes["slots"]
  store = memory.empty(len(sizes), slots, (1, 1, 1))
  rng = np.random.default_rng(0)
  seen = 0
  for phase, data in enumerate(stream):
    pool = len(data.images) + (0 if joint else store.counts.sum())
    assert pool <= shapes["capacity"]
    assert store.counts.sum() <= shapes["old_slots"]
    new = range(seen, seen + data.new_classes)
    seen += data.new_classes
    allowance = policy.allowance(seen)
    picks = exemplars.select(
      rng,
      np.zeros((len(data.labels), 1), np.float32),
      data.labels,
      new,
      strategy="random",
      allowance=allowance,
    )
    if phase:
      assert len(picks) <= shapes["new_slots"]
      assert joint or pool <= shapes["later_capacity"]
    for label in new:
      own = picks[data.labels[picks] == label]
      store = memory.insert(store, label, data.images[own])
    store = memory.discard(rng, store, allowance)
    # The same share for every class seen, unless a class has fewer images.
    expected = [min(allowance, size) for size in sizes[:seen]]
    assert store.counts[:seen].tolist() == expected
    assert not store.counts[seen:].any()
    if isinstance(policy, protocol.Total):
      assert store.counts.sum() <= policy.images
    else:
      assert store.counts.max() <= policy.images
    # Exemplars are images of their class, each at most once.
    images, labels = memory.flat(store)
    assert len(set(images.ravel().tolist())) == len(images)
    np.testing.assert_array_equal(
      dataset.train_labels[images.ravel()], order[labels]
    )


@PROFILE
@hypothesis.given(streams(), policies)
def test_a_budget_is_refused_or_leaves_something_of_every_class(drawn, policy):
  stream, *_ = drawn
  split, smallest = stream.classes_per_phase, min(stream.class_sizes)
  share = policy.allowance(sum(split))
  try:
    protocol.check_memory(policy, split, smallest)
  except protocol.ProtocolError as error:
    assert "--memory=" in str(error)
    assert not 1 <= share <= smallest
  else:
    assert 1 <= share <= smallest


@st.composite
def confusions(draw):
  """Counts after every phase."""
  split = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
  rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
  highest = draw(st.sampled_from([1, 2, 20]))  # 1: all counts are zero.
  found = []
  for seen in np.cumsum(split).tolist():
    counts = rng.integers(highest, size=(seen, seen))
    counts[:, draw(st.integers(0, seen - 1))] += 1  # No class without images.
    found.append(counts)
  return split, found


@PROFILE
@hypothesis.given(confusions())
def test_metrics_stay_in_range(drawn):
  split, found = drawn
  accuracies = [protocol.accuracy(counts) for counts in found]
  bases = []
  for phase, counts in enumerate(found):
    groups = protocol.group_accuracies(counts, split)
    assert len(groups) == phase + 1
    assert all(0 <= value <= 1 for value in [*groups, accuracies[phase]])
    # Groups weighted by their images are the whole.
    borders = np.cumsum([0, *split[: phase + 1]])
    weights = np.add.reduceat(counts.sum(1), borders[:-1])
    mean = np.average(groups, weights=weights)
    np.testing.assert_allclose(mean, accuracies[phase])
    bases.append(groups[0])
  average = protocol.average_accuracy(accuracies)
  tiny = 1e-12
  assert min(accuracies) - tiny <= average <= max(accuracies) + tiny
  assert -1 <= protocol.forgetting(bases) <= 1
  mean, half = protocol.confidence_interval(accuracies)
  assert mean == average
  assert (half is None) == (len(found) == 1)
  assert half is None or half >= 0
