"""Steps through a model as through a program: breakpoints, frames, values computed on demand."""
