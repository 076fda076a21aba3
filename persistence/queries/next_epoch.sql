-- Gives out an epoch that nobody has had.
SELECT nextval('epochs')
