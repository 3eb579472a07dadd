"""The protocol against published values, hand computations and properties."""

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mnemonics_jax import memory, methods, phase, protocol
from mnemonics_jax.data import Dataset
from mnemonics_jax.data.stream import ClassStream
from mnemonics_jax.errors import UserError
from mnemonics_jax.nn import networks


def test_class_order_is_the_published_one():
  order = protocol.class_order(100)
  assert order[:10].tolist() == [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]
  assert sorted(order) == list(range(100))


def test_another_seed_is_another_order():
  # `permutation` is what legacy NumPy calls the shuffle of a range.
  for seed in (0, 7):
    expected = np.random.RandomState(seed).permutation(100)
    np.testing.assert_array_equal(protocol.class_order(100, seed), expected)


def test_imagenet_subset_has_no_repeats():
  subset = protocol.class_subset(1000, 100)
  assert len(set(subset.tolist())) == 100
  expected = np.random.RandomState(1993).choice(1000, 100, replace=False)
  np.testing.assert_array_equal(subset, expected)


@pytest.mark.parametrize(
  "arguments, expected",
  [
    ((100, 5), (50, 10, 10, 10, 10, 10)),
    ((100, 25), (50, *[2] * 25)),
    ((10, 5, 5), (5, 1, 1, 1, 1, 1)),
    ((10, 3, 0), (4, 3, 3)),
    ((10, 4, 3), (3, 2, 2, 2, 1)),
    ((100, 0), (50,)),
    ((10, 0, 10), (10,)),
  ],
)
def test_split_phases(arguments, expected):
  assert protocol.split_phases(*arguments) == expected


@pytest.mark.parametrize(
  "arguments, field, part",
  [
    ((100, 0, 0), "phases", "`phases=0`"),
    ((100, -1), "phases", "`phases=-1`"),
    ((100, 1.5), "phases", "`phases=1.5` .* whole"),
    ((100, 51), "phases", "`phases=51` .*; use `phases=50` or fewer"),
    ((10, 2, 10), "base_classes", "leaves no class for `phases=2`"),
    ((10, 2, 11), "base_classes", "`base_classes=11`"),
    ((10, 2, -1), "base_classes", "`base_classes=-1`"),
    ((10, 2, 2.5), "base_classes", "`base_classes=2.5` .* whole"),
  ],
)
def test_impossible_splits_name_the_setting(unchecked, arguments, field, part):
  with pytest.raises(UserError, match=part) as refused:
    protocol.split_phases(*arguments)
  assert refused.value.field == field


@given(st.data())
def test_every_class_belongs_to_exactly_one_nonempty_phase(data):
  classes = data.draw(st.integers(2, 300))
  base = data.draw(st.integers(0, classes - 1))
  phases = data.draw(st.integers(1, classes - base))
  split = protocol.split_phases(classes, phases, base)
  assert sum(split) == classes and min(split) >= 1
  assert len(split) == phases + (base > 0)
  later = split[1:] if base else split
  assert max(later) - min(later) <= 1


CONFUSION = np.array([[8, 2, 0, 0], [1, 9, 0, 0], [0, 5, 5, 0], [0, 0, 0, 10]])


def test_metrics_by_hand():
  assert protocol.accuracy(CONFUSION) == 32 / 40
  assert protocol.accuracy(CONFUSION, slice(0, 2)) == 17 / 20
  assert protocol.group_accuracies(CONFUSION, (2, 1, 1)) == [0.85, 0.5, 1.0]
  # Two phases learned of three.
  assert protocol.group_accuracies(CONFUSION[:3, :3], (2, 1, 1)) == [0.85, 0.5]
  assert protocol.average_accuracy([0.9, 0.6, 0.3]) == pytest.approx(0.6)
  assert protocol.forgetting([0.9, 0.8, 0.7]) == pytest.approx(0.2)


def test_group_accuracies_follow_unequal_groups():
  np.testing.assert_allclose(
    protocol.group_accuracies(CONFUSION, (1, 3)), [0.8, 24 / 30]
  )


def test_confidence_interval_against_a_table_of_t():
  # t_{0.975} with 2 degrees of freedom is 4.302653; s of (1, 2, 3) is 1.
  mean, half = protocol.confidence_interval([1.0, 2.0, 3.0])
  assert mean == 2.0
  assert half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
  assert protocol.confidence_interval([0.5]) == (0.5, None)


# Whatever the number of classes, the split and the budget.


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
