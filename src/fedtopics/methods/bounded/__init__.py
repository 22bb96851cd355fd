"""How `lda`, `nmf`, `kmeans` and `discriminative` keep differential privacy.

In a study with [privacy] few sums with noise run in place of a method's own exchanges: `method` is
the program and the exchanges that several methods have, `client` its client-side code,
`contributions` is what a document adds to a sum, and `estimates` what is made of noisy sums. What
one method alone asks for stands in its own package, in `noisy`.
"""
