"""What each verb of the command line does, as functions that scripts can call too."""
