"""Tables, trees and progress that the commands print."""
