"""What people bring: texts from files, standard input, URLs and data sets, and the folder in which a run keeps them."""
