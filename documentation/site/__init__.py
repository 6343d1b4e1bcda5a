"""What MkDocs needs beside the pages of `docs/`: pages from elsewhere in the repository, and links that lead there."""
