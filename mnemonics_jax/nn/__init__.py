"""Networks and what surrounds them: convolution, heads, transfer, augmentation."""
