"""The doctor's statements against real SGLang: real classes, real weights, real arguments."""
