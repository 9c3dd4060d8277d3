"""The generated part of docs/: what the code says of its own templates and verbs, so that it is never said twice."""
