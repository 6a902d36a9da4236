"""The pure machines of one seat, which holds a part of a crew's replica."""
