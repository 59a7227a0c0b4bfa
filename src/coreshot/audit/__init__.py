"""What messages give away, measured: many distillations with and without a record, and an attacker who looks at what arrives."""
