"""Whatever the number of classes, the split and the budget.

Small runs of the protocol without any training: real streams, memories and
metrics, and a brute force account of what they should do.
"""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from mnemonics_jax import memory, methods, phase, protocol
from mnemonics_jax.data import Dataset
from mnemonics_jax.data.stream import ClassStream
from mnemonics_jax.errors import UserError
from mnemonics_jax.nn import networks

PROFILE = hypothesis.settings(
  deadline=None, max_examples=100, database=None, derandomize=True
)


@st.composite
def cuts(draw):
  """Classes of any size, in any order, cut into any phases: only numbers."""
  classes = draw(st.integers(2, 12))
  base = draw(st.integers(0, classes - 1))
  return dict(
    base=base,
    phases=draw(st.integers(1, classes - base)),
    sizes=draw(st.lists(st.integers(1, 9), min_size=classes, max_size=classes)),
    order_seed=draw(st.integers(0, 2**32 - 1)),
    joint=draw(st.booleans()),
  )


def make(base, phases, sizes, order_seed, joint):
  """A stream that is cut like that, its data set and its class order."""
  classes = len(sizes)
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
  order = protocol.class_order(classes, order_seed)
  split = protocol.split_phases(classes, phases, base)
  return ClassStream(dataset, order, split, joint=joint), dataset, order


policies = st.one_of(
  st.builds(memory.PerClass, st.integers(1, 12)),
  st.builds(memory.Total, st.integers(1, 60)),
)


@PROFILE
@hypothesis.given(cuts())
def test_every_class_arrives_exactly_once(cut):
  (stream, dataset, order), joint = make(**cut), cut["joint"]
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


@st.composite
def affordable(draw):
  """A cut, and a budget that it can meet."""
  cut = draw(cuts())
  classes, smallest = len(cut["sizes"]), min(cut["sizes"])
  per_class = draw(st.integers(1, smallest))
  total = draw(st.integers(classes, (smallest + 1) * classes - 1))
  policy = st.sampled_from([memory.PerClass(per_class), memory.Total(total)])
  return cut, draw(policy)


def most_that_a_run_needs(stream, policy):
  config = phase.Config(
    network=networks.resnet8(
      image_shape=stream.image_shape, mean=stream.mean, std=stream.std
    ),
    method=methods.METHODS["joint" if stream.joint else "lucir"](),
    shape=stream.shape,
    memory=policy,
  )
  return config.sizes


@PROFILE
@hypothesis.given(affordable())
def test_memory_keeps_to_its_budget(drawn):
  cut, policy = drawn
  (stream, dataset, order), joint = make(**cut), cut["joint"]
  sizes, most = stream.class_sizes, most_that_a_run_needs(stream, policy)
  store = memory.empty(len(sizes), (1, 1, 1))
  rng = np.random.default_rng(0)
  seen = 0
  for number, data in enumerate(stream):
    pool = len(data.images) + (0 if joint else store.counts.sum())
    assert pool <= most.pool
    assert store.counts.sum() <= most.old_exemplars
    new = range(seen, seen + data.new_classes)
    seen += data.new_classes
    allowance = policy.allowance(seen)
    rows = [np.flatnonzero(data.labels == label) for label in new]
    picks = np.concatenate([rng.permutation(r)[:allowance] for r in rows])
    if number:
      assert len(picks) <= most.new_exemplars
      assert joint or pool <= most.later_pool
    store = memory.store(store, data.images[picks], data.labels[picks])
    store = memory.discard(rng, store, allowance)
    # The same share for every class seen, unless a class has fewer images.
    expected = [min(allowance, size) for size in sizes[:seen]]
    assert store.counts[:seen].tolist() == expected
    assert not store.counts[seen:].any()
    if isinstance(policy, memory.Total):
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
@hypothesis.given(cuts(), policies)
def test_a_budget_is_refused_or_leaves_something_of_every_class(cut, policy):
  stream, *_ = make(**cut)
  split, smallest = stream.classes_per_phase, min(stream.class_sizes)
  share = policy.allowance(sum(split))
  try:
    memory.check(policy, split, smallest)
  except UserError as error:
    assert error.field == "memory" and "`memory=" in str(error)
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
  for number, counts in enumerate(found):
    groups = protocol.group_accuracies(counts, split)
    assert len(groups) == number + 1
    assert all(0 <= value <= 1 for value in [*groups, accuracies[number]])
    # Groups weighted by their images are the whole.
    borders = np.cumsum([0, *split[: number + 1]])
    weights = np.add.reduceat(counts.sum(1), borders[:-1])
    mean = np.average(groups, weights=weights)
    np.testing.assert_allclose(mean, accuracies[number])
    bases.append(groups[0])
  average = protocol.average_accuracy(accuracies)
  tiny = 1e-12
  assert min(accuracies) - tiny <= average <= max(accuracies) + tiny
  assert -1 <= protocol.forgetting(bases) <= 1
  mean, half = protocol.confidence_interval(accuracies)
  assert mean == average
  assert (half is None) == (len(found) == 1)
  assert half is None or half >= 0
