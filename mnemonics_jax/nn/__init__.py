"""Networks and what surrounds them: convolution, heads, transfer, augmentation.

A network is a hashable description; its arrays are passed in:

>>> import jax, jax.numpy as jnp
>>> from mnemonics_jax.nn import heads, model, networks
>>> network = networks.resnet8(width=4, image_shape=(8, 8, 3))
>>> described = model.Model(network, heads.CosineHead(), classes=10)
>>> variables = described.init(jax.random.key(0))
>>> apply = jax.jit(described.apply, static_argnames="train")
>>> outputs, batch_stats = apply(variables, jnp.zeros((2, 8, 8, 3)), train=True)
>>> outputs.features.shape, outputs.logits.shape
((2, 16), (2, 10))

A network of your own is any linen module that returns features:

>>> from flax import linen
>>> class Mlp(linen.Module):
...   @linen.compact
...   def __call__(self, images, train):
...     return linen.Dense(7)(images.reshape(len(images), -1))
>>> networks.Network(Mlp(), image_shape=(8, 8, 3)).feature_dim
7
"""
