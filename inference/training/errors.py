"""Owns the errors that the training commands raise for input they cannot use.

TrainingError
├── CorpusError        a corpus cannot be built or read
├── VocabularyError    a tokenizer is missing markers, or was not made by this package
├── OptionError        a training option is out of range or contradicts another
└── CheckpointError    a checkpoint cannot be resumed
"""


class TrainingError(Exception):
    """Base of all errors raised for bad input; the command line prints it without a traceback."""


class CorpusError(TrainingError):
    """A corpus cannot be built from, or read from, the given place."""


class VocabularyError(TrainingError):
    """A tokenizer cannot be used for training."""


class OptionError(TrainingError):
    """A training option has a value that makes no sense."""


class CheckpointError(TrainingError):
    """A checkpoint does not fit the run that wants to resume it."""
