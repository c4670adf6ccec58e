"""The playground: an editor in the browser whose suggestions an editing session makes, as for any editor."""
