"""Single-line breaks of important lines, and the tests that should notice.

A break is (old, new) or (old, new, tests); without tests of its own, those of its
file run, the cheapest first. `old` occurs exactly once in its file.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Break(NamedTuple):
  """A line that is made wrong.

  Attributes:
    file: path in the repository.
    old: a part of one of its lines.
    new: what stands there instead.
    tests: paths below `tests` that should fail then.
  """

  file: str
  old: str
  new: str
  tests: tuple[str, ...]

  def __str__(self) -> str:
    return f"{self.file}: {self.old.strip()}  →  {self.new.strip()}"


_LIBRARY = {
  "protocol.py": (
    ("protocol_test.py", "protocol_properties_test.py"),
    [
      ("RandomState(seed).shuffle(order)", "RandomState(1993).shuffle(order)"),
      ("num_classes // 2 if base_classes", "num_classes // 3 if base_classes"),
      ("even + (i < extra)", "even + (i <= extra)"),
      ("((base,) if base else ()) + increments", "(base,) + increments"),
      ("np.diagonal(confusion)[classes].sum()", "np.diagonal(confusion).sum()"),
      ("if stop <= len(confusion)", "if stop < len(confusion)"),
      (
        "float(base_accuracies[0] - base_accuracies[-1])",
        "float(base_accuracies[-1] - base_accuracies[0])",
      ),
      ("values.std(ddof=1)", "values.std()"),
      ("ppf(0.975, len(values) - 1)", "ppf(0.95, len(values) - 1)"),
    ],
  ),
  "losses.py": (
    ("losses_test.py", "methods"),
    [
      ("mask_logits(teacher_logits, old) / temp", "teacher_logits / temp"),
      ("mask_logits(logits, old) / temperature", "mask_logits(logits, old)"),
      ("jnp.mean(1.0 - cosines)", "jnp.mean(1.0 + cosines)"),
      ("mask_logits(cosines, new), desc", "cosines, desc"),
      ("margin - truth + hardest", "margin + truth - hardest"),
      ("jnp.maximum(is_old.sum(), 1)", "len(labels)"),
      ("jnp.sum(losses * active, -1).mean()", "jnp.sum(losses, -1).mean()"),
      ("jnp.maximum(count, 1)", "len(labels)"),
    ],
  ),
  "memory/selection.py": (
    ("memory/selection_test.py",),
    [
      ("np.asarray(normalize(features), np.float64)", "np.asarray(features, np.float64)"),
      ("weight += mean - x[pick]", "weight += mean + x[pick]"),
      ("free[pick] = False", "free[pick] = True"),
      ("picks.append(rows[chosen])", "picks.append(chosen)"),
      ("rng.permutation(images)[:count]", "np.arange(images)[:count]"),
    ],
  ),
  "memory/store.py": (
    ("memory/store_test.py",),
    [
      ("memory.codec.encode(images[order])", "memory.codec.encode(images)"),
      ("[new if count else memory for count", "[new for count"),
      ("len(rows) <= allowance", "len(rows) <= allowance + 1"),
      ("sizes[rows].sum() <= bytes_allowance", "sizes[rows].max() <= bytes_allowance"),
      ("first[: apart(number)]", "first[:0]"),
      ("rng.permutation(others)", "others"),
      ("if memory.counts.any() else 0", "if False else 0"),
    ],
  ),
  "memory/policy.py": (
    ("memory/policy_test.py",),
    [
      ("self.images // classes_seen", "-(-self.images // classes_seen)"),
      (
        "min(policy.allowance(classes_per_phase[0]), largest_class)",
        "min(policy.allowance(sum(classes_per_phase)), largest_class)",
      ),
      ("policy.allowance(classes) > smallest_class", "False"),
    ],
  ),
  "methods/lwf.py": (
    ("methods",),
    [
      (
        "self.balance * ce + (1 - self.balance) * kd",
        "(1 - self.balance) * ce + self.balance * kd",
      ),
      ("classes.old, self.temperature", "classes.seen, self.temperature"),
      ("teacher is None or not self.distill", "teacher is None"),
    ],
  ),
  "methods/bic.py": (
    ("methods", "phase/train_test.py"),
    [
      ("classes.old.sum() / classes.seen.sum()", "0.5"),
      ("share * kd + (1 - share) * ce", "(1 - share) * kd + share * ce"),
      ('jnp.where(classes.new, beta, layers["beta"])', "beta + 0 * classes.new"),
      ("np.where(new, alpha * z + beta, z)", "alpha * z + beta"),
      ('layers["alpha"] * outputs.logits', "outputs.logits"),
    ],
  ),
  "methods/icarl.py": (
    ("methods",),
    [("jnp.where(classes.old, old, targets)", "jnp.where(classes.new, old, targets)")],
  ),
  "methods/lucir.py": (
    ("methods", "phase/train_test.py"),
    [
      ("jnp.sqrt(ratio)", "ratio"),
      ("    return classes.new", "    return classes.seen"),
      (
        'imprint(params["head"], jnp.asarray(means()), classes.new, norm)',
        'params["head"]',
      ),
      ("classes.new, norm)", "classes.new, 1.0)"),
      ("ce + self.ranking_weight * ranking", "ce"),
      ("self.less_forget_weight(classes) * forget", "forget"),
    ],
  ),
  "nn/heads.py": (
    ("nn/heads_test.py", "nn/model_test.py", "methods"),
    [
      ("keepdims=True) + 1e-12", "keepdims=True)"),
      ('params["sigma"] * cosines, cosines', "cosines, cosines"),
      ("jnp.float32(self.sigma)", "jnp.float32(1.0)"),
      ('params["weight"].T + params["bias"]', 'params["weight"].T'),
      ("rows = norm * normalize(means)", "rows = norm * means"),
    ],
  ),
  "nn/augment.py": (
    ("nn/augment_test.py",),
    [
      ("images[:, :, ::-1]", "images[:, ::-1]"),
      ("2 * self.pad + 1, jnp", "2 * self.pad, jnp"),
      ("if self.mirror else images", "if not self.mirror else images"),
      ("(1.0 - box) * size", "box * size"),
    ],
  ),
  "nn/transfer.py": (
    ("nn/transfer_test.py",),
    [
      ('["mean"] - t["shift"]', '["mean"] + t["shift"]'),
      ('{"in_out": inputs, "out": 1}', '{"in_out": 1, "out": inputs}'),
      ('params[name]["kernel"] * t["scale"]', 'params[name]["kernel"]'),
    ],
  ),
  "nn/networks.py": (
    ("nn/networks_test.py", "nn/model_test.py"),
    [("momentum=0.9,", "momentum=0.99,")],
  ),
  "data/stream.py": (
    ("data/stream_test.py",),
    [
      (
        "protocol.class_order(classes, order_seed),",
        "protocol.class_order(classes),",
        ("data/stream_test.py", "experiments/settings_test.py"),
      ),
      ("first = 0 if self.joint else n_old", "first = n_old"),
      ("_concatenate(self._test, 0, n_seen)", "_concatenate(self._test, n_old, n_seen)"),
    ],
  ),
  "phase/schedule.py": (
    ("phase/schedule_test.py",),
    [
      ("epoch >= milestone", "epoch > milestone"),
      ("math.ceil(images / self.batch_size)", "images // self.batch_size"),
    ],
  ),
  "phase/scope.py": (
    ("phase/scope_test.py", "phase/sgd_test.py"),
    [
      ('x - 1 if path[-1].key == "scale" else x', "x"),
      ("leaf, 0)", "leaf, leaf)"),
      ('if name != "kernel"', "if True"),
    ],
  ),
  "phase/holdout.py": (
    ("phase/holdout_test.py",),
    [
      ("max(1, round(fraction * count))", "round(fraction * count)"),
      ("held[rows[: share(", "held[rows[1 : 1 + share("),
    ],
  ),
  "phase/evaluate.py": (
    ("phase/evaluate_test.py",),
    [
      ("np.argmax(logits[:, :seen], -1)", "np.argmax(logits, -1)"),
      ("np.add.at(sums, labels, normalize(features))", "np.add.at(sums, labels, features)"),
      ("normalize(features) @ means.T", "normalize(features) @ means[::-1].T"),
      ("labels * seen + predictions", "predictions * seen + labels"),
      (
        'before if config.finetune == "head" else None',
        "before",
        ("phase/evaluate_test.py", "phase/run_test.py"),
      ),
    ],
  ),
  "phase/exemplars.py": (
    ("phase/exemplars_test.py",),
    [
      ("data.labels >= phase.classes_old", "data.labels >= 0"),
      ("[chosen.inputs, old]", "[old, chosen.inputs]"),
    ],
  ),
  "phase/context.py": (
    ("phase/context_test.py", "phase/run_test.py"),
    [
      ("allowance(self.classes_seen)", "allowance(max(self.classes_old, 1))"),
      ("seen & ~old", "seen"),
    ],
  ),
  "phase/sgd.py": (
    ("phase/sgd_test.py",),
    [
      ("optax.trace(schedule.momentum)", "optax.trace(0.0)"),
      ("schedule.weight_decay)", "0.0)"),
      ("updates = hold_rows(updates, task.rows)", "pass"),
      (
        "teacher = forward(model, method, task.teacher, images)[0]",
        "teacher = model.apply(task.teacher, images)[0]",
        ("phase/sgd_test.py", "phase/train_test.py"),
      ),
      ('train=task.scope != "head"', "train=True", ("phase/epochs_test.py",)),
    ],
  ),
  "phase/epochs.py": (
    ("phase/epochs_test.py",),
    [
      ("at = i - block.first", "at = i"),
      ("fold_in(key, now.epoch)", "fold_in(key, 0)"),
      ("task.augment(jax.random.fold_in(key, i), images)", "task.augment(key, images)"),
      ("np.array(schedule.rate(now.epoch)", "np.array(schedule.rate(0)"),
    ],
  ),
  "phase/pool.py": (
    ("phase/feed_test.py", "phase/epochs_test.py"),
    [
      ("order[at % pool.count]", "order[at % (pool.count - 1)]"),
      ("range(step, total, steps)", "range(0, total, steps)"),
      ("      step = 0", "      pass"),
    ],
  ),
  "phase/feed.py": (
    ("phase/feed_test.py",),
    [
      ("first * size, stop * size) % self.draws", "first * size, stop * size) % self.capacity"),
      ("      step = 0", "      pass"),
      ("self.images, rows, seed, part.epoch", "self.images, rows, seed, 0"),
      ("np.full((steps, size), -1)", "np.zeros((steps, size), int)"),
      ("/ mesh.device_count()", "* 2"),
      ('return stream == "always"', "return True"),
    ],
  ),
  "parallel/ahead.py": (
    ("parallel/ahead_test.py",),
    [
      ("len(waiting) > ahead", "waiting"),
      ("while waiting:\n      yield waiting.popleft()", "while waiting:\n      yield waiting.pop()"),
      ("thread.shutdown(cancel_futures=True)", "thread.shutdown(wait=False)"),
    ],
  ),
  "data/reading.py": (
    ("data/folder_test.py",),
    [
      ("join_checksums(self.checksums[rows]", "join_checksums(self.checksums"),
      ("!= self.checksums[row]", "== -1"),
    ],
  ),
  "phase/train.py": (
    ("phase/train_test.py",),
    [
      ("config.train if phase.classes_old else config.base", "config.base"),
      ("    schedule=config.balance,", "    schedule=config.train,"),
      ("method.trainable_rows(classes) if phase.incremental else classes.seen", "classes.seen"),
      (
        "make_feed(*_trainable(phase, memory), config.sizes.pool, config.stream)",
        "make_feed(*(a[_trainable(phase, memory)[1] >= phase.classes_old]"
        " for a in _trainable(phase, memory)), config.sizes.pool, config.stream)",
      ),
      ("variables = transfer.fold(variables)", "pass"),
      ("    teacher = variables", "    teacher = None"),
    ],
  ),
  "phase/run.py": (
    ("phase/run_test.py",),
    [
      ('"final": final.confusion', '"final": trained.confusion'),
      ('memory_lib.replace(memory, changes["adjust"].after)', "memory"),
      ('    images = changes["exemplars"].after', "    pass"),
      ("variables, memory, state.key, state.phase + 1", "variables, state.memory, state.key, state.phase + 1"),
    ],
  ),
  "phase/keys.py": (
    ("phase/keys_test.py",),
    [("jax.random.fold_in(root, phase)", "root")],
  ),
  "phase/level.py": (
    ("phase/level_test.py",),
    [("_SIGMA = 10.0", "_SIGMA = 1.0")],
  ),
  "bilevel/batches.py": (
    ("bilevel/batches_test.py",),
    [
      ("rows[part::parts]", "rows[part * size : (part + 1) * size]"),
      ("step * size + jnp.arange(size)", "jnp.arange(size)"),
      ("shape, jnp.float32), 2.0", "shape, jnp.float32), 0.0"),
    ],
  ),
  "bilevel/base_level.py": (
    ("bilevel/base_level_test.py", "bilevel/hypergradient_test.py"),
    [
      ("blind = functools.partial(step, lax.stop_gradient(inputs))", "blind = functools.partial(step, inputs)"),
      ("heads.imprint(head, sums, member.any(axis=1))", "heads.imprint(head, sums, member.any(axis=1) | True)"),
      ("& mask[None, :]", "& (mask[None, :] | True)"),
      ("config.inner_steps - k)", "k)"),
      ("updates, opt_state = tx.update(grads, opt_state, trained)", "updates, _ = tx.update(grads, opt_state, trained)"),
      ("model.forward(trained, model.inputs(batch))", "model.forward(model.trained, model.inputs(batch))"),
    ],
  ),
  "bilevel/meta_level.py": (
    ("bilevel/meta_level_test.py", "bilevel/optimize_test.py"),
    [
      ("config.max_change / 255", "config.max_change / 128"),
      ("jnp.clip(proposed, low, high)", "jnp.clip(proposed, 0, 1)"),
      ("fold_in(order_key, epoch_start)", "fold_in(order_key, 0)"),
      ("jnp.maximum(total // 5, 1)", "jnp.maximum(total, 1)"),
      ("jnp.where(images_mask, projected, state.images)", "projected"),
      ("state.step % steps),", "0),", ("bilevel/batches_test.py",)),
      ("displacement=255 *", "displacement=1 *"),
    ],
  ),
  "bilevel/adjust.py": (
    ("bilevel/adjust_test.py",),
    [
      ("if other != part]", "]"),
      ("self._rows[part][real]", "self._rows[part][real][::-1]"),
      ("before + moment.epoch", "moment.epoch"),
    ],
  ),
}  # fmt: skip

_COMMANDS = {
  "experiments/settings.py": (
    ("experiments/settings_test.py",),
    [
      ("rate=settings.finetune_learning_rate,", "rate=settings.learning_rate,"),
      ("order_seed=settings.order_seed,", "order_seed=1993,"),
      ("base=_schedule(settings, settings.base_epochs)", "base=train"),
    ],
  ),
}


def breaks() -> Iterator[Break]:
  """All breaks, file by file."""
  named = {f"mnemonics_jax/{name}": found for name, found in _LIBRARY.items()}
  for file, (tests, found) in (named | _COMMANDS).items():
    for old, new, *own in found:
      yield Break(file, old, new, own[0] if own else tests)
