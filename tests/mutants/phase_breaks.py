"""Lines of a phase that are made wrong, see `breaks`."""

PHASE = {
  "phase/config.py": (
    ("phase/config_test.py",),
    [
      ("epoch >= milestone", "epoch > milestone"),
      ("math.ceil(images / self.batch_size)", "images // self.batch_size"),
      ("last + 1)", "last)"),
      ("min(start + coming - stop, stop)", "start", ("phase/config_test.py",)),
      ("(new if imitates else 0)", "0", ("phase/config_test.py",)),
    ],
  ),
  "phase/sgd.py": (
    ("phase/sgd_test.py",),
    [
      ('x - 1 if path[-1].key == "scale" else x', "x", ("phase/sgd_test.py",)),
      ("leaf, 0)", "leaf, leaf)", ("phase/sgd_test.py",)),
      ('if name != "kernel"', "if True", ("phase/sgd_test.py",)),
      ("optax.trace(schedule.momentum)", "optax.trace(0.0)", ("phase/sgd_test.py",)),
      ("schedule.weight_decay)", "0.0)", ("phase/sgd_test.py",)),
      ("updates = hold_rows(updates, task.rows)", "pass", ("phase/sgd_test.py",)),
      ("teacher = own_logits(method, task.teacher, teacher)", "pass", ("phase/sgd_test.py",)),
      ('images, task.scope != "head")', "images, True)"),
      ("at = i - block.first", "at = i"),
      ("fold_in(key, now.epoch)", "fold_in(key, 0)"),
      ("task.augment(jax.random.fold_in(key, i), images)", "task.augment(key, images)"),
      ("np.array(schedule.rate(now.epoch)", "np.array(schedule.rate(0)"),
    ],
  ),
  "phase/draws.py": (
    ("phase/draws_test.py",),
    [
      ("max(1, round(fraction * count))", "round(fraction * count)"),
      ("held[rows[: held_share(count, fraction)]]", "held[rows[1 : 1 + held_share(count, fraction)]]"),
      ("min(len(rows), allowance or len(rows))", "len(rows)"),
      ("jax.random.uniform(class_key, labels.shape)", "jnp.arange(len(labels))", ("phase/draws_test.py",)),
    ],
  ),
  "phase/evaluate.py": (
    ("phase/evaluate_test.py",),
    [
      ("labels * seen + predictions", "predictions * seen + labels"),
      ('before if config.finetune == "head" else None', "before", ("phase/evaluate_test.py", "phase/run_test.py")),
    ],
  ),
  "readouts/base.py": (
    ("contracts/readouts_test.py",),
    [("logits[:, :seen]", "logits")],
  ),
  "readouts/nme.py": (
    ("contracts/readouts_test.py",),
    [
      ("np.add.at(sums, labels, normalize(features))", "np.add.at(sums, labels, features)"),
      ("normalize(features) @ normalize(means).T", "normalize(features) @ normalize(means)[::-1].T"),
    ],
  ),
  "exemplars/choose.py": (
    ("exemplars/choose_test.py",),
    [
      ("data.labels >= phase.classes_old", "data.labels >= 0"),
      ("[: phase.allowance]", ""),
      ("np.asarray(normalize(features), np.float64)", "np.asarray(features, np.float64)", ("exemplars/herding_test.py",)),
      ("weight += mean - x[pick]", "weight += mean + x[pick]", ("exemplars/herding_test.py",)),
      ("free[pick] = False", "free[pick] = True", ("exemplars/herding_test.py",)),
      ("rows[rng.permutation(len(rows))[:count]]", "rows[np.arange(len(rows))[:count]]"),
      ("picks.append(first + strategy", "picks.append(0 * first + strategy", ("contracts/strategies_test.py",)),
    ],
  ),
  "exemplars/learn.py": (
    ("exemplars/learn_test.py",),
    [
      ("[chosen.inputs, old]", "[old, chosen.inputs]"),
      ('if config.validate_on == "new":', "if False:"),
      ("level, parts = exemplar_level(config), config.adjust_parts", "level, parts = exemplar_level(config), 2"),
      ("jax.random.fold_in(key, number), images", "key, images"),
    ],
  ),
  "exemplars/level.py": (
    ("exemplars/learn_test.py",),
    [
      ("_SIGMA = 10.0", "_SIGMA = 1.0"),
    ],
  ),
  "exemplars/future.py": (
    ("exemplars/future_test.py",),
    [
      ('_held(variables["params"], known["rows"])', 'variables["params"]'),
      ('batch_norm="batch"', 'batch_norm="frozen"'),
      ("inner_lr=config.train.learning_rate", "inner_lr=None"),
    ],
  ),
  "phase/context.py": (
    ("phase/context_test.py", "contracts/strategies_test.py"),
    [
      ("allowance(self.classes_seen)", "allowance(max(self.classes_old, 1))"),
      ("seen & ~old", "seen"),
      ("self.config.code_new and self.incremental", "self.config.code_new", ("phase/coded_test.py",)),
      ("jax.random.fold_in(root, phase)", "root", ("phase/context_test.py",)),
    ],
  ),
  "phase/feed.py": (
    ("phase/feed_test.py",),
    [
      ("order[at % pool.count]", "order[at % (pool.count - 1)]", ("phase/feed_test.py", "phase/sgd_test.py")),
      ("range(step, total, steps):\n        block", "range(0, total, steps):\n        block", ("phase/feed_test.py", "phase/sgd_test.py")),
      ("total)\n      step = 0", "total)\n      pass", ("phase/feed_test.py", "phase/sgd_test.py")),
      ("first * size, stop * size) % self.draws", "first * size, stop * size) % self.capacity"),
      ("rows)\n      step = 0", "rows)\n      pass"),
      ("self.draws, seed, part.epoch", "self.draws, seed, 0"),
      ("np.full((steps, size), -1)", "np.zeros((steps, size), int)"),
      ("/ mesh.device_count()", "* 2"),
      ('return stream == "always"', "return True"),
      ("round_trip(self.codec, self.store.read(rows, draws))", "self.store.read(rows, draws)", ("phase/coded_test.py",)),
      ("return self.store.varies", "return False", ("phase/coded_test.py",)),
      ("  return round_trip(codec, images)", "  return images", ("phase/coded_test.py",)),
    ],
  ),
  "parallel/prefetch.py": (
    ("parallel/prefetch_test.py",),
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
      ("kept, labels = _trainable(phase, memory)", "kept, labels = (a[_trainable(phase, memory)[1] >= phase.classes_old] for a in _trainable(phase, memory))"),
      ("quota = draws.equal_quotas(labels, config.model.classes)", "quota = None"),
      ("variables = transfer.fold(variables)", "pass"),
      ("    teacher = phase.state.variables", "    teacher = None"),
      ("config.method.begin_finetune(variables, phase.classes)", "None, phase.classes"),
      ("kept = ~draws.held_in_memory(labels, phase.config.method.holdout)", "kept = np.ones(len(labels), bool)"),
    ],
  ),
  "phase/run.py": (
    ("phase/run_test.py",),
    [
      ('"final": final.confusion', '"final": trained.confusion'),
      ("rng = None if strategy.ordered else phase", "rng = None if True else phase", ("contracts/strategies_test.py",)),
      ("None if strategy.ordered", "None if False", ("contracts/strategies_test.py",)),
      ("memory_lib.replace(memory, change.after)", "memory"),
      ('changes["exemplars"], images = change, change.after', 'changes["exemplars"] = change'),
      ("variables, memory, state.key, state.phase + 1", "variables, state.memory, state.key, state.phase + 1"),
    ],
  ),
}  # fmt: skip
