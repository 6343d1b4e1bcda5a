module memory-index.dev/embedder-clients

go 1.24

require github.com/sashabaranov/go-openai v1.43.0
