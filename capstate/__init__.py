"""What the model can call is what is authorised now: re-derived, receipted, guarded."""
