"""How annotations are checked while tests run."""

from beartype import BeartypeConf, beartype

# As Python's own convention has it, an int will do where a float is expected.
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
