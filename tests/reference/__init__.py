"""The generated parts of the documentation: made from the code, written between marks in pages, compared by a test.

    python -m tests.reference

writes them anew. A part stands between two comments in a page:

    <!-- generated: labels -->
    ...
    <!-- generated: end -->

The word behind ``generated:`` names the function in ``tests.reference.parts`` that makes it; more words go to it.
"""
