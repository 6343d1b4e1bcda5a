// The program `ask URL MODEL` asks with go-openai and prints the vector.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/sashabaranov/go-openai"
)

func main() {
	config := openai.DefaultConfig("any")
	config.BaseURL = os.Args[1] + "/v1"
	answer, err := openai.NewClientWithConfig(config).CreateEmbeddings(context.Background(), openai.EmbeddingRequest{
		Input: []string{"The NAS is backed up to the second disk every night at three."},
		Model: openai.EmbeddingModel(os.Args[2]),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(answer.Data[0].Embedding)
}
