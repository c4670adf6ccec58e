"""The errors that the training commands raise for invalid input; those of models are `BadModel`.

TrainingError
├── CorpusError        a corpus cannot be built or read
├── VocabularyError    a tokenizer is missing, or cannot be learned
├── OptionError        a training option is out of range or contradicts another
├── CheckpointError    a checkpoint cannot be resumed
└── TransferError      a folder cannot be packed, or restored from its parts
"""

from protocol.errors import BadInput


class TrainingError(BadInput):
    """Base of all; the command line prints it without a traceback."""


class CorpusError(TrainingError):
    """A corpus cannot be built from, or read from, the given place."""


class VocabularyError(TrainingError):
    """A tokenizer cannot be used for training."""


class OptionError(TrainingError):
    """A training option has an invalid value."""


class CheckpointError(TrainingError):
    """A checkpoint does not fit the run that resumes it."""


class TransferError(TrainingError):
    """A folder cannot be packed into parts, or its parts are incomplete or damaged."""
