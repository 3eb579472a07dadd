"""What the meta step of ImageNet's ResNet-18 needs, by classes per chunk.

  python -m benchmarks.memory            # several minutes: it compiles
  python -m benchmarks.memory --quick    # small images

Nothing is run: the compiler says how much memory a program takes. Exemplars are
learned for some classes at a time (`--exemplar_chunk`), 20 images each at 224×224
pixels, with the whole network unrolled (`scope="all"`, `remat="step"`).
"""

import time
from typing import Any

from absl import app, flags
import jax
import jax.numpy as jnp

from benchmarks import measure
from mnemonics_jax import bilevel
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.heads import CosineHead
from mnemonics_jax.nn.model import Model

_QUICK = flags.DEFINE_bool("quick", False, "Images of 64×64 pixels.")
_OUTPUT = flags.DEFINE_string(
  "output", None, "JSON file; the default is below benchmarks/results."
)
_CHUNKS = flags.DEFINE_multi_integer(
  "chunk", [100, 20, 10, 5, 2], "Classes whose exemplars are learned at once."
)
_PER_CLASS = flags.DEFINE_integer("per_class", 20, "Exemplars of a class.")
_CLASSES = flags.DEFINE_integer("classes", 100, "Classes of the head.")
_INNER_STEPS = flags.DEFINE_integer("inner_steps", 50, "Unrolled steps.")
_VALID = flags.DEFINE_integer("valid", 128, "Validation images per meta step.")
_IMAGES = flags.DEFINE_integer(
  "images_per_class", 1300, "Training images of a class, kept as uint8."
)


def main(_):
  size = 64 if _QUICK.value else 224
  network = networks.resnet18(image_shape=(size, size, 3))
  model = Model(network, CosineHead(), _CLASSES.value)
  rows: list[dict[str, Any]] = []
  for chunk in _CHUNKS.value:
    began = time.perf_counter()
    used = meta_step_bytes(model, chunk * _PER_CLASS.value)
    rows.append(
      {
        "classes per chunk": chunk,
        "exemplars": chunk * _PER_CLASS.value,
        "meta_step": used,
        "data": chunk * _IMAGES.value * size * size * 3,
        "compile_seconds": time.perf_counter() - began,
      }
    )
    print(f"{chunk} classes: {used / 2**30:.1f} GiB", flush=True)
  measure.Results("memory", _OUTPUT.value, _QUICK.value).add(
    "memory",
    f"ResNet-18, {size}×{size}",
    rows,
    _shown,
    image_size=size,
    inner_steps=_INNER_STEPS.value,
  )


def meta_step_bytes(model: Model, exemplars: int) -> int:
  """Bytes of a compiled meta step on `exemplars` images, all included."""
  config = bilevel.BilevelConfig(
    scope="all", remat="step", inner_steps=_INNER_STEPS.value
  )

  def program(variables, images, labels, valid, valid_labels):
    return bilevel.hypergradient(
      bilevel.Exemplars(images, labels),
      variables,
      (valid, valid_labels),
      apply_fn=lambda v, x: model.apply(v, x)[0].logits,
      config=config,
    )

  shape = jax.ShapeDtypeStruct
  images = lambda n, dtype: shape((n, *model.network.image_shape), dtype)
  lowered = jax.jit(program).lower(
    jax.eval_shape(model.init, jax.random.key(0)),
    images(exemplars, jnp.float32),
    shape((exemplars,), jnp.int32),
    images(_VALID.value, jnp.uint8),
    shape((_VALID.value,), jnp.int32),
  )
  # Buffers are assigned before machine code is made: leave that unoptimised.
  options: Any = {"xla_backend_optimization_level": 0}
  compiled = lowered.compile(options)
  memory: Any = compiled.memory_analysis()
  return (
    memory.temp_size_in_bytes
    + memory.argument_size_in_bytes
    + memory.output_size_in_bytes
  )


def _shown(row):
  gib = lambda key: f"{row[key] / 2**30:.1f} GiB"
  return {
    "classes per chunk": row["classes per chunk"],
    "exemplars": row["exemplars"],
    "meta step": gib("meta_step"),
    "data of the classes": gib("data"),
    "both": f"{(row['meta_step'] + row['data']) / 2**30:.1f} GiB",
    "compile": f"{row['compile_seconds']:.0f} s",
  }


if __name__ == "__main__":
  app.run(main)
