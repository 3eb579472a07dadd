"""Single-line breaks of important lines, and the tests that should notice.

A break is (old, new) or (old, new, tests); without tests of its own, those of its
file run, the cheapest first. `old` occurs exactly once in its file.
"""

from collections.abc import Iterator
from typing import NamedTuple

from mutants.phase_breaks import PHASE


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


_LIBRARY = PHASE | {
  "protocol.py": (
    ("protocol_test.py",),
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
      ("bytes_allowance(classes_seen, shared) // policy.size", "allowance(classes_seen)"),
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
      ("jnp.where(classes.old, old, targets)", "jnp.where(classes.new, old, targets)"),
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
  "methods/e2e.py": (
    ("methods/methods_test.py",),
    [
      ("jax.vmap(distill)(classes.old_phases)", "distill(classes.old)"),
      ("return ce + kd,", "return 0.5 * ce + 0.5 * kd,"),
      ("self.noise / batch_size**2", "self.noise"),
      ("old=classes.seen, new", "old=classes.old, new"),
      ("return variables if self.distill else None", "return None"),
    ],
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
      ('reduction="mean", ', ""),
      ("CosineHead(sigma=1.0)", "CosineHead()"),
    ],
  ),
  "nn/heads.py": (
    ("nn/model_test.py", "methods"),
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
        "protocol.class_order(available, order_seed)",
        "protocol.class_order(available)",
        ("data/stream_test.py", "contracts/settings_test.py"),
      ),
      ("first = 0 if self.joint else n_old", "first = n_old"),
      ("_concatenate(self._test, 0, n_seen)", "_concatenate(self._test, n_old, n_seen)"),
    ],
  ),
  "runs/drafts.py": (
    ("runs/drafts_test.py",),
    [
      ("        if left:", "        if True:"),
      ("if replace and path.exists():", "if path.exists():"),
      ("for aside in _asides(path) if replace else ():", "for aside in ():"),
      ("if error.errno not in _CANNOT:", "if True:"),
    ],
  ),
  "runs/artifact.py": (
    ("runs/artifact_test.py",),
    [
      ("    if wrong:", "    if not found:"),
      ("if made_for.get(name, here) != here:", "if False:"),
      ("  if found > kind.format:", "  if False:"),
      ("(() if kind.documented else found.keys())", "set()"),
      ("if not 0 <= start <= stop <= len(whole) - first:", "if False:"),
      ("array if array.nbytes >= _LARGE else np.array(array)", "np.array(array)"),
      ("None if all(jax.tree.leaves(same)) else", "None if True else"),
    ],
  ),
  "runs/claim.py": (
    ("runs/claim_test.py",),
    [
      ("of.get(name, usual.get(name))", "of.get(name)"),
      ('claimed.get("data", checksum) != checksum', "False"),
      ('claimed.get("numerics", 0) != NUMERICS', "False"),
    ],
  ),
  "bilevel/data.py": (
    ("bilevel/data_test.py",),
    [
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
      ("state.step % steps),", "0),", ("bilevel/data_test.py",)),
      ("displacement=255 *", "displacement=1 *"),
    ],
  ),
  "bilevel/optimize.py": (
    ("bilevel/optimize_test.py", "bilevel/data_test.py"),
    [
      ("rows[part::parts]", "rows[part * size : (part + 1) * size]"),
      ("if other != part]", "]"),
      ("self._rows[part][real]", "self._rows[part][real][::-1]"),
      ("before + moment.epoch", "moment.epoch"),
    ],
  ),
}  # fmt: skip

_COMMANDS = {
  "mnemonics_jax/settings/settings.py": (
    ("contracts/settings_test.py",),
    [
      (
        'needs=_FINETUNED, to="balance.learning_rate")',
        'needs=_FINETUNED, to="train.learning_rate")',
      ),
      ('"Seed of the class order.", **_SEED, to="stream")', '"", **_SEED)'),
      ('to="base.epochs")', 'to="train.epochs")'),
      (
        'yields_to=("learning_rate",), to="base.learning_rate",',
        'yields_to=("learning_rate",),',
      ),
      (
        'yields_to=("learning_rate",), to="base.learning_rate",',
        'to="base.learning_rate",',
        ("contracts/settings_test.py",),
      ),
    ],
  ),
  "experiments/tables/fill.py": (
    ("experiments/tables/fill_test.py",),
    [
      (
        'if written_once and known.get("code") != cell["code"]:',
        "if written_once and not cell:",
      ),
    ],
  ),
  "experiments/tables/write.py": (
    ("experiments/tables/fill_test.py",),
    [
      ("sorted(studies, key=len)", "studies[::-1]"),
      ("sorted(studies, key=len)", "studies"),
      (' and "study" not in cell', ""),
    ],
  ),
}


def breaks() -> Iterator[Break]:
  """All breaks, file by file."""
  named = {f"mnemonics_jax/{name}": found for name, found in _LIBRARY.items()}
  for file, (tests, found) in (named | _COMMANDS).items():
    for old, new, *own in found:
      yield Break(file, old, new, own[0] if own else tests)
